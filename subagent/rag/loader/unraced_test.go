//go:build !race

// One goroutine reads a document, so scripts/test runs the largest of the hostile ones without the race detector, which
// finds nothing in them and takes ten times as long.

package loader

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
)

func TestHostilePDFs(t *testing.T) {
	testtier.Slow(t)
	kids := func(n int) string { return strings.Repeat("3 0 R ", n) }
	pages := func(tree string, more ...string) string {
		objects := map[int]string{1: "<</Type/Catalog/Pages 2 0 R>>", 2: tree,
			3: "<</Type/Page/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>", 4: stream("", "BT /F1 9 Tf (text) Tj ET"),
			5: "<</Type/Font/Subtype/Type1/Encoding/WinAnsiEncoding>>"}
		for i, o := range more {
			objects[3+i] = o
		}
		return writePDF(objects, "/Root 1 0 R")
	}
	for _, tree := range []string{"<</Type/Pages/Count 100000/Kids[3 0 R]>>", "<</Type/Pages/Count 100000/Kids[" +
		kids(100_000) + "]>>"} {
		_, sentence := refusal(t, "a.pdf", pages(tree), Limits{})
		require.Equal(t, "the PDF has more than 5000 pages", sentence)
	}

	mustLoad(t, "a.pdf", makePDF(page("the engine is ready")))
	zeros := deflate(t, strings.Repeat("0 ", 4<<20))
	for name, content := range map[string]string{
		"pages in pages": pages("<</Type/Pages/Count 1/Kids[" + strings.Repeat("<</Type/Pages/Count 1/Kids[",
			5_000)),
		"many brackets":     pages(strings.Repeat("[", 100_000)),
		"no tree of pages":  pages("2 0 R"),
		"a circle of pages": pages("<</Type/Pages/Count 3/Kids[2 0 R 2 0 R 2 0 R]>>"),
		"no pages":          pages("<</Type/Pages/Kids[]>>"),
		"a form in itself": pages("<</Count 1/Kids[3 0 R]>>",
			"<</Type/Page/Contents 4 0 R/Resources<</XObject<</X 4 0 R>>>>>>",
			stream("/Subtype/Form/Resources<</XObject<</X 4 0 R>>>>", "/X Do /X Do")),
		"a bomb of content": pages("<</Count 1/Kids[3 0 R]>>", "<</Type/Page/Contents 4 0 R>>",
			stream("/Filter/FlateDecode", zeros)),
		"a bomb in a bomb": pages("<</Count 1/Kids[3 0 R]>>", "<</Type/Page/Contents 4 0 R>>",
			stream("/Filter[/FlateDecode/FlateDecode]", deflate(t, zeros))),
		"a bomb of objects": pages("<</Count 1/Kids[3 0 R]>>", "<</Type/Page/Contents 4 0 R>>",
			stream("/Type/ObjStm/N 9/First 9/Filter/FlateDecode", zeros)),
		"endless columns": pages("<</Count 1/Kids[3 0 R]>>", "<</Type/Page/Contents 4 0 R>>",
			stream("/Filter/FlateDecode/DecodeParms<</Predictor 12/Columns 99999999999>>", zeros)),
		"an object stream in itself": pages("<</Count 1/Kids[9 0 R]>>", "<</Type/Page/Contents 4 0 R>>",
			stream("/Type/ObjStm/N 1/First 4/Extends 4 0 R", "4 0 5 0 R")),
		"an unclosed string": pages("<</Count 1/Kids[3 0 R]>>", "<</Type/Page/Contents 4 0 R>>",
			stream("", strings.Repeat("(", 2<<20))),
		"many unclosed objects": "%PDF-1.4\n" + strings.Repeat("1 0 obj (\n", 100_000),
		"many unclosed streams": "%PDF-1.4\n" + strings.Repeat("1 0 obj <<>> stream\n", 100_000),
		"a huge object number":  "%PDF-1.4\n2147483647 0 obj <</Type/Page>> endobj",
		"a table of endless size": "%PDF-1.4\nxref\n2000000000 1\n0000000000 00000 n \ntrailer<</Size 99999999999/Prev " +
			"9>>\nstartxref\n9\n%%EOF",
	} {
		t.Run(name, func(t *testing.T) {
			code, sentence := refusal(t, "a.pdf", content, Limits{Time: 5 * time.Second})
			require.Contains(t, []Code{TooLarge, Damaged, Empty, Timeout}, code, sentence)
		})
	}
}

func TestZipBombs(t *testing.T) {
	testtier.Slow(t)
	packed := bomb(t, 6<<20)
	require.Less(t, len(packed), 100_000)
	code, sentence := refusal(t, "a.docx", packed, Limits{})
	require.Equal(t, TooLarge, code)
	require.Contains(t, sentence, "unpacks to far more than its size")

	code, sentence = refusal(t, "a.docx", packed, Limits{Unpacked: 1 << 20})
	require.Equal(t, TooLarge, code)
	require.Equal(t, "the archive unpacks to more than 1 MB", sentence)

	// The archive lies about the size: what is unpacked counts.
	liar := strings.ReplaceAll(packed, string(le32(uint32(len(opening)+6<<20))), string(le32(1000)))
	require.NotEqual(t, packed, liar)
	code, sentence = refusal(t, "a.docx", liar, Limits{})
	require.Contains(t, []Code{TooLarge, Damaged}, code, sentence)

	entries := map[string]string{wordMain: "<x/>"}
	for i := range mostEntries {
		entries[fmt.Sprint(i)] = ""
	}
	code, sentence = refusal(t, "a.docx", makeZip(t, entries), Limits{})
	require.Equal(t, TooLarge, code)
	require.Equal(t, "the archive holds more than 10000 files", sentence)
}

func TestHostileSheets(t *testing.T) {
	testtier.Slow(t)
	require.Equal(t, "7", mustLoad(t, "a.xlsx", makeWorkbook(t, `<row r="1048576"><c r="XFD1048576"><v>7</v></c></row>`,
		"", "")).Text)
	for name, c := range map[string]struct {
		sheet, strings, styles, want string
		limits                       Limits
	}{
		"rows": {sheet: strings.Repeat(`<row><c><v>1</v></c></row>`, 50), limits: Limits{Rows: 20},
			want: "the file has more than 20 rows"},
		"cells": {sheet: "<row>" + strings.Repeat(`<c><v>1</v></c>`, 20_000) + "</row>",
			want: "a row of more than 16384 cells"},
		"texts": {strings: strings.Repeat("<si/>", 41), limits: Limits{Rows: 20}, want: "the workbook has more than"},
		"long texts": {sheet: "<row>" + strings.Repeat(`<c t="s"><v>0</v></c>`, 200) + "</row>", strings: "<si><t>" +
			strings.Repeat("x", 1<<20) + "</t></si>", limits: Limits{Text: 1 << 20}, want: "rows of too many long texts"},
		"styles":     {styles: strings.Repeat("<xf/>", largestPart/5), want: "xl/styles.xml is larger than 8 MB"},
		"deep":       {sheet: strings.Repeat("<row>", 1000), want: "lie more than 500 deep"},
		"a long tag": {sheet: `<row a="` + strings.Repeat("x", 2<<20) + `"/>`, want: "a tag of more than 1 MB"},
		"a bomb":     {sheet: strings.Repeat(`<row><c><v>1</v></c></row>`, 400_000), want: "far more than its size"},
		"no row":     {sheet: `<row r="9999999999"><c/></row>`, want: "cannot be read as an Excel workbook"},
		"cut":        {sheet: `<row r="1"><c`, want: "cannot be read as an Excel workbook"},
	} {
		t.Run(name, func(t *testing.T) {
			code, sentence := refusal(t, "a.xlsx", makeWorkbook(t, c.sheet, c.strings, c.styles), c.limits)
			require.Contains(t, []Code{TooLarge, Damaged}, code)
			require.Contains(t, sentence, c.want)
		})
	}
	code, sentence := refusal(t, "a.xlsx", makeZip(t, map[string]string{
		"_rels/.rels": relationsXML([3]string{"1", "officeDocument", "xl/workbook.bin"}), "xl/workbook.bin": "x"}), Limits{})
	require.Equal(t, Unsupported, code)
	require.Contains(t, sentence, "save it as .xlsx")
}

// A line of 100 MB is passed over without being kept, and the next one is read.
func TestHugeLine(t *testing.T) {
	testtier.Slow(t)
	big := io.LimitReader(endless{}, 100<<20)
	content := io.MultiReader(strings.NewReader(`{"text":"`), big, strings.NewReader("\"}\n{\"text\":\"small\"}\n"))
	var lines []string
	for item, err := range Documents(context.Background(), "a.jsonl", "", content, Limits{}) {
		if err != nil {
			require.Equal(t, TooLarge, CodeOf(err))
			lines = append(lines, err.Error())
			continue
		}
		lines = append(lines, item.Document.Text)
	}
	require.Equal(t, []string{"line 1: it is longer than 50 MB", "small"}, lines)

	for _, name := range []string{"a.txt", "a.md", "a.html", "a.csv", "a.json"} {
		_, err := Load(context.Background(), name, "", io.LimitReader(endless{}, 100<<20), Limits{})
		require.Equal(t, TooLarge, CodeOf(err), name)
	}
}

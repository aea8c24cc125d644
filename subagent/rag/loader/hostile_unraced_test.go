//go:build !race

// The race detector finds nothing in a reader of one goroutine, and makes hostile input take twenty times as long.

package loader

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
)

// Tables of strangers cost no more than the limits allow, whatever they say of spans.
func TestHostileTables(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	many := func(n int, text string) string { return strings.Repeat(text, n) }
	huge := `<td colspan="100000" rowspan="1000000000">x</td>`
	wordCell := `<w:tc><w:tcPr><w:gridSpan w:val="1000000000"/><w:vMerge/></w:tcPr><w:p/></w:tc>`
	openCell := `<table:table-cell table:number-columns-spanned="1000000000" table:number-rows-spanned="1000000000" ` +
		`table:number-columns-repeated="1000000000"><text:p>x</text:p></table:table-cell>`
	merges := ""
	for n := 1; n <= 20_000; n++ {
		merges += fmt.Sprintf(`<mergeCell ref="A%d:XFD%d"/>`, n, n+1000)
	}
	for name, content := range map[string]string{
		"wide.html":   "<table>" + many(2000, "<tr>"+huge+"<td>y</tr>") + "</table>",
		"deep.html":   "<table><tr>" + many(5_000, huge) + "</tr>" + many(5_000, "<tr><td>y</tr>") + "</table>",
		"empty.html":  "<p>x<table><tr>" + many(20_000, `<td rowspan=1000000000>z`) + "</tr>" + many(20_000, "<tr><td></tr>") + "</table>",
		"none.html":   "<p>x<table><tr>" + many(20_000, `<td rowspan=1000000000>z`) + "</tr>" + many(20_000, "<tr></tr>") + "</table>",
		"blank.html":  "<p>x<table>" + many(30_000, "<tr><td rowspan=99999999>") + "</table>",
		"within.html": many(60, "<table><tr><td>a<td>b<td>") + "x",
		"long.html":   "<table><tr><th>" + many(50_000, "name ") + many(2000, "<tr><td>y<td>z") + "</table>",
		"wide.md":     "a\n\n<table>" + many(2000, "<tr>"+huge+"<td>y</tr>") + "</table>\n",
		"wide.docx":   makeWord(t, wordParagraph("x")+"<w:tbl>"+many(3000, "<w:tr>"+wordCell+wordCell+"</w:tr>")+"</w:tbl>"),
		"many.docx": makeWord(t, wordParagraph("x")+"<w:tbl><w:tr>"+many(30_000, `<w:tc><w:tcPr><w:vMerge/></w:tcPr></w:tc>`)+
			"</w:tr></w:tbl>"),
		"before.docx": makeWord(t, "<w:tbl>"+many(3000, `<w:tr><w:trPr><w:gridBefore w:val="999999999"/></w:trPr><w:tc>`+wordParagraph("x")+
			"</w:tc></w:tr>")+"</w:tbl>"),
		"boxes.docx": makeWord(t, many(90, "<w:p><w:r><w:txbxContent><w:tbl><w:tr><w:tc>")+wordParagraph("x")+
			many(90, "</w:tc></w:tr></w:tbl></w:txbxContent></w:r></w:p>")),
		"wide.pptx": makeSlide(t, "<a:tbl>"+many(3000, `<a:tr><a:tc gridSpan="1000000000"><a:p><a:t>x</a:t></a:p></a:tc>`+
			many(20, `<a:tc hMerge="1"/><a:tc vMerge="1"/>`)+"</a:tr>")+"</a:tbl>"),
		"wide.odt": makeOpen(t, "", "<office:text><table:table>"+many(300, "<table:table-row>"+openCell+openCell+"</table:table-row>")+
			"</table:table></office:text>"),
		"wide.ods": makeOpen(t, "", "<office:spreadsheet><table:table>"+many(300, "<table:table-row>"+openCell+"</table:table-row>")+
			"</table:table></office:spreadsheet>"),
		"wide.xlsx":  makeWorkbook(t, `<row r="1"><c r="A1"><v>1</v></c></row></sheetData><mergeCells>`+merges+"</mergeCells><sheetData>", "", ""),
		"wide.rtf":   `{\rtf1 ` + many(3000, `\trowd\cellx-999999999\clmrg\cellx999999999\clvmrg\cellx5\intbl x\cell y\cell z\cell\row `) + "}",
		"many.rtf":   `{\rtf1 ` + many(30_000, `\cellx1`) + many(30_000, `x\cell`) + `\row}`,
		"lists.docx": makeWord(t, many(3000, styled(`<w:numPr><w:ilvl w:val="99999"/><w:numId w:val="7"/></w:numPr>`, "x"))),
		"list.html":  `<ol start="999999999999999" type=i><li value="-99999999">x</ol><ol reversed start=3999999>` + many(3000, "<li>x"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := loadText(t, name, content, Limits{Time: 20 * time.Second, Text: 8 << 20})
			require.NotEqual(t, Timeout, CodeOf(err), "the time limit ends it, and nothing else")
			if err != nil {
				require.Equal(t, TooLarge, CodeOf(err), err)
			}
		})
	}
}

package loader

import (
	"archive/zip"
	"bytes"
	"compress/zlib"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func makeZip(t testing.TB, parts map[string]string) string {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		w, err := z.Create(name)
		require.NoError(t, err)
		_, err = w.Write([]byte(parts[name]))
		require.NoError(t, err)
	}
	require.NoError(t, z.Close())
	return b.String()
}

// Where the parts of a Word document usually are.
const (
	wordMain   = "word/document.xml"
	wordStyles = "word/styles.xml"
	wordNotes  = "word/footnotes.xml"
	wordCore   = "docProps/core.xml"
)

const wordXML = `<?xml version="1.0" encoding="UTF-8"?><w:document xmlns:w="w"><w:body>%s</w:body></w:document>`

func makeWord(t testing.TB, body string) string {
	return makeZip(t, map[string]string{
		wordMain:              fmt.Sprintf(wordXML, body),
		"[Content_Types].xml": "<Types/>",
		wordStyles: `<w:styles xmlns:w="w"><w:style w:styleId="1"><w:name w:val="heading 1"/></w:style><w:style w:styleId="a5"><w:name w:val="heading 2"/></w:style>
			<w:style w:styleId="own"><w:name w:val="Own"/><w:pPr><w:outlineLvl w:val="2"/></w:pPr></w:style><w:style w:styleId="lb"><w:name w:val="List Bullet"/></w:style></w:styles>`,
		wordNotes: `<w:footnotes xmlns:w="w"><w:footnote><w:p><w:r><w:t>A footnote.</w:t></w:r></w:p></w:footnote></w:footnotes>`,
		wordCore:  `<cp:coreProperties xmlns:cp="c" xmlns:dc="d"><dc:creator>x</dc:creator><dc:title>The  title</dc:title></cp:coreProperties>`,
	})
}

func wordParagraph(text string) string { return "<w:p><w:r><w:t>" + text + "</w:t></w:r></w:p>" }

func styled(properties, text string) string {
	return "<w:p><w:pPr>" + properties + "</w:pPr><w:r><w:t>" + text + "</w:t></w:r></w:p>"
}

func TestWord(t *testing.T) {
	cell := func(text string) string { return "<w:tc>" + wordParagraph(text) + "</w:tc>" }
	d := mustLoad(t, "a.docx", makeWord(t, wordParagraph("Before.")+
		styled(`<w:pStyle w:val="1"/>`, "Глава")+
		"<w:p><w:r><w:t>One</w:t><w:tab/><w:t xml:space=\"preserve\"> two </w:t></w:r><w:del><w:r><w:delText>gone</w:delText></w:r></w:del><w:r><w:t>three.</w:t><w:br/><w:t>Line</w:t></w:r></w:p>"+
		styled(`<w:pStyle w:val="a5"/>`, "Part")+
		styled(`<w:numPr><w:ilvl w:val="0"/><w:numId w:val="1"/></w:numPr>`, "item one")+
		styled(`<w:numPr><w:ilvl w:val="1"/><w:numId w:val="1"/></w:numPr>`, "inner")+
		styled(`<w:pStyle w:val="lb"/>`, "item two")+
		wordParagraph("After &amp; more.")+
		"<w:tbl><w:tr>"+cell("Name")+cell("Days")+"</w:tr><w:tr>"+cell("Ann")+"<w:tc><w:tbl><w:tr>"+cell("inner")+cell("table")+"</w:tr></w:tbl></w:tc></w:tr></w:tbl>"+
		styled(`<w:pStyle w:val="own"/>`, "Deep")+
		"<w:p><mc:AlternateContent><mc:Choice><w:r><w:t>shown</w:t></w:r></mc:Choice><mc:Fallback><w:r><w:t>twice</w:t></w:r></mc:Fallback></mc:AlternateContent></w:p>"))
	require.Equal(t, "The title", d.Title)
	require.Equal(t, []string{
		"Глава: One\t two three.\nLine",
		"Глава > Part: - item one\n  - inner\n- item two\n\nAfter & more.\n\n| Name | Days |\n| Ann | inner table |",
		"Глава > Part > Deep: shown\n\nA footnote.",
	}, outline(d))
	require.True(t, strings.HasPrefix(d.Text, "Before.\n\nГлава"))
	require.Len(t, d.Whole, 1)
}

func TestBadWord(t *testing.T) {
	whole := makeWord(t, strings.Repeat(wordParagraph("some text"), 1000))
	code, _ := refusal(t, "a.docx", whole[:len(whole)/2], Limits{})
	require.Equal(t, Damaged, code)
	broken := []byte(whole)
	for i := 200; i < 260; i++ {
		broken[i] ^= 0x55
	}
	_, _ = loadText(t, "a.docx", string(broken), Limits{}) // any refusal, or the text

	for body, want := range map[string]Code{
		strings.Repeat("<w:p>", 100_000): TooLarge,
		"<w:p":                           Damaged,
		"":                               Empty,
	} {
		parts := map[string]string{wordMain: fmt.Sprintf(wordXML, body)}
		code, sentence := refusal(t, "a.docx", makeZip(t, parts), Limits{})
		require.Equal(t, want, code, sentence)
	}
}

const opening = "<w:document><w:body><w:p><w:r><w:t>"

// bomb is a Word document whose text is unpacked to that many bytes.
func bomb(t *testing.T, bytes int) string {
	return makeZip(t, map[string]string{wordMain: opening + strings.Repeat("a", bytes)})
}

func TestZipBombs(t *testing.T) {
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

func le32(n uint32) []byte { return []byte{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)} }

// page is a page's content stream with lines of text.
func page(lines ...string) string {
	content := "BT /F1 12 Tf 14 TL 72 720 Td "
	for _, line := range lines {
		content += "(" + line + ") Tj T* "
	}
	return content + "ET\f" // \f divides pages for makePDF
}

// makePDF makes a PDF of pages as page writes them.
func makePDF(pages string) string {
	objects := map[int]string{
		1: "<</Type/Catalog/Pages 2 0 R>>",
		3: "<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>",
	}
	kids := ""
	contents := strings.Split(strings.TrimSuffix(pages, "\f"), "\f")
	for i, content := range contents {
		id := 10 + 2*i
		kids += fmt.Sprintf("%d 0 R ", id)
		objects[id] = fmt.Sprintf("<</Type/Page/Parent 2 0 R/Contents %d 0 R>>", id+1)
		objects[id+1] = fmt.Sprintf("<</Length %d>>\nstream\n%s\nendstream", len(content), content)
	}
	objects[2] = fmt.Sprintf("<</Type/Pages/Count %d/Kids[%s]/Resources<</Font<</F1 3 0 R>>>>>>", len(contents), kids)
	return writePDF(objects, "/Root 1 0 R")
}

// writePDF writes objects and a cross-reference table.
func writePDF(objects map[int]string, trailer string) string {
	var b strings.Builder
	b.WriteString("%PDF-1.4\n%\xe2\xe3\xcf\xd3\n")
	ids := slices.Sorted(maps.Keys(objects))
	table := ""
	for _, id := range ids {
		table += fmt.Sprintf("%d 1\n%010d 00000 n \n", id, b.Len())
		fmt.Fprintf(&b, "%d 0 obj\n%s\nendobj\n", id, objects[id])
	}
	fmt.Fprintf(&b, "xref\n0 1\n0000000000 65535 f \n%strailer\n<</Size %d%s>>\nstartxref\n%d\n%%%%EOF\n", table, ids[len(ids)-1]+1, trailer, b.Len())
	return b.String()
}

func deflate(t testing.TB, data string) string {
	var b bytes.Buffer
	w := zlib.NewWriter(&b)
	_, err := w.Write([]byte(data))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.String()
}

func stream(dict, data string) string {
	return fmt.Sprintf("<<%s/Length %d>>\nstream\n%s\nendstream", dict, len(data), data)
}

func TestPDF(t *testing.T) {
	d := mustLoad(t, "a_report.pdf", makePDF(page("First line,", "second line of infor-", "mation.")+page("Caf\\351 \\(open\\)")+page()))
	require.Equal(t, "a report", d.Title)
	require.Equal(t, "First line,\nsecond line of information.\n\nCafé (open)", d.Text)
	require.Equal(t, []string{"page 1: First line,\nsecond line of information.", "page 2: Café (open)"}, outline(d))
}

// Words and paragraphs follow from where the glyphs are put.
func TestPDFSpacing(t *testing.T) {
	require.Equal(t, "Two words here\n\nNew paragraph\nsame one, a form and kerned words", mustLoad(t, "a.pdf", writePDF(map[int]string{
		1: "<</Type/Catalog/Pages 2 0 R>>", 2: "<</Type/Pages/Kids[4 0 R]/Count 1>>",
		3: "<</Type/Font/Subtype/Type1/Encoding/WinAnsiEncoding/FirstChar 0/Widths[" + strings.Repeat("500 ", 256) + "]>>",
		4: "<</Type/Page/Contents[5 0 R 6 0 R]/Resources<</Font<</F1 3 0 R>>/XObject<</X 7 0 R>>>>>>",
		5: stream("", "q BT /F1 10 Tf 1 0 0 1 72 700 Tm (Two) Tj 18 0 Td (words) Tj 1 0 0 1 117 700 Tm (here) Tj "+
			"1 0 0 1 72 660 Tm (New paragraph) Tj ET Q BI /W 2 /H 2 ID \x00(\xff<\x01 EI "),
		6: stream("", "BT /F1 10 Tf 12 TL 72 648 Td (same one, ) Tj ET /X Do BT /F1 10 Tf 172 648 Td [(and)-300(ke)20(rned)-250(words)] TJ ET"),
		7: stream("/Type/XObject/Subtype/Form/Resources<</Font<</F2 3 0 R>>>>", "BT /F2 10 Tf 127 648 Td (a form ) Tj ET"),
	}, "/Root 1 0 R")).Text)
}

func TestPDFCharacterMaps(t *testing.T) {
	cmap := "/CIDInit /ProcSet findresource begin 1 begincodespacerange <0000> <ffff> endcodespacerange " +
		"2 beginbfchar <0001> <041F> <0002> <00660069> endbfchar 2 beginbfrange <0010> <0012> <0430> <0020> <0021> [<0041> <0042>] endbfrange " +
		"1000000000000 beginbfchar endbfchar"
	objects := map[int]string{
		1: "<</Type/Catalog/Pages 2 0 R>>", 2: "<</Type/Pages/Kids[4 0 R]/Count 1>>",
		3: "<</Type/Font/Subtype/Type0/Encoding/Identity-H/ToUnicode 6 0 R/DescendantFonts[<</DW 600/W[1[500 600]16 18 700]>>]>>",
		4: "<</Type/Page/Contents 5 0 R/Resources<</Font<</F1 3 0 R>>>>>>",
		5: stream("/Filter/FlateDecode", deflate(t, "BT /F1 10 Tf <00010010001100120002002000210099> Tj ET")),
		6: stream("/Filter[/FlateDecode]", deflate(t, cmap)),
	}
	require.Equal(t, "ПабвfiAB", mustLoad(t, "a.pdf", writePDF(objects, "/Root 1 0 R")).Text)

	// In an object stream, and with no table at all.
	inner := "1 0 2 " + fmt.Sprint(len(objects[1])+1) + " "
	packed := map[int]string{3: objects[3], 4: objects[4], 5: objects[5], 6: objects[6],
		9: stream(fmt.Sprintf("/Type/ObjStm/N 2/First %d/Filter/FlateDecode", len(inner)), deflate(t, inner+objects[1]+" "+objects[2]))}
	whole := writePDF(packed, "/Root 1 0 R")
	require.Equal(t, "ПабвfiAB", mustLoad(t, "a.pdf", whole).Text)
	require.Equal(t, "ПабвfiAB", mustLoad(t, "a.pdf", whole[:strings.Index(whole, "xref")]+"trailer<</Root 1 0 R>>").Text)
}

func TestEncryptedPDF(t *testing.T) {
	for _, trailer := range []string{
		"/Root 1 0 R/Encrypt 8 0 R/ID[<00><00>]",
		"/Root 1 0 R/Encrypt<</Filter/Standard/V 2/R 3/O<" + strings.Repeat("00", 32) + ">/U<" + strings.Repeat("00", 32) + ">/P -4>>/ID[<00><00>]",
	} {
		code, sentence := refusal(t, "a.pdf", writePDF(map[int]string{1: "<</Type/Catalog/Pages 2 0 R>>", 2: "<</Type/Pages/Kids[]>>"}, trailer), Limits{})
		require.Equal(t, Encrypted, code)
		require.Equal(t, "the PDF is encrypted: save it without a password or other protection", sentence)
	}
}

func TestTruncatedPDF(t *testing.T) {
	whole := makePDF(strings.Repeat(page("some text of a page that is long enough"), 20))
	for cut := 20; cut < len(whole); cut += 97 {
		_, _ = loadText(t, "a.pdf", whole[:cut], Limits{}) // sound in any case
	}
	d := mustLoad(t, "a.pdf", whole[:len(whole)*3/4])
	require.Contains(t, d.Text, "some text of a page")
	code, _ := refusal(t, "a.pdf", "%PDF-1.4\nnothing", Limits{})
	require.Equal(t, Damaged, code)
}

func TestHostilePDFs(t *testing.T) {
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
	claim := pages("<</Type/Pages/Count 100000/Kids[3 0 R]>>")
	require.Equal(t, "text", mustLoad(t, "a.pdf", claim).Text)
	// What is no tree of pages is left aside for the pages themselves.
	require.Equal(t, "text", mustLoad(t, "a.pdf", pages("2 0 R")).Text)
	require.Equal(t, "text", mustLoad(t, "a.pdf", pages(strings.Repeat("[", 100_000))).Text)
	_, sentence := refusal(t, "a.pdf", pages("<</Type/Pages/Count 1/Kids["+kids(100_000)+"]>>"), Limits{})
	require.Equal(t, "the PDF has more than 5000 pages", sentence)

	zeros := deflate(t, strings.Repeat("0 ", 4<<20))
	for name, content := range map[string]string{
		"a circle of pages":          pages("<</Type/Pages/Kids[2 0 R 2 0 R 2 0 R]>>"),
		"no pages":                   pages("<</Type/Pages/Kids[]>>"),
		"a form in itself":           pages("<</Kids[3 0 R]>>", "<</Type/Page/Contents 4 0 R/Resources<</XObject<</X 4 0 R>>>>>>", stream("/Subtype/Form/Resources<</XObject<</X 4 0 R>>>>", "/X Do /X Do")),
		"a bomb of content":          pages("<</Kids[3 0 R]>>", "<</Type/Page/Contents 4 0 R>>", stream("/Filter/FlateDecode", zeros)),
		"a bomb in a bomb":           pages("<</Kids[3 0 R]>>", "<</Type/Page/Contents 4 0 R>>", stream("/Filter[/FlateDecode/FlateDecode]", deflate(t, zeros))),
		"a bomb of objects":          pages("<</Kids[3 0 R]>>", "<</Type/Page/Contents 4 0 R>>", stream("/Type/ObjStm/N 9/First 9/Filter/FlateDecode", zeros)),
		"endless columns":            pages("<</Kids[3 0 R]>>", "<</Type/Page/Contents 4 0 R>>", stream("/Filter/FlateDecode/DecodeParms<</Predictor 12/Columns 99999999999>>", zeros)),
		"an object stream in itself": pages("<</Kids[9 0 R]>>", "<</Type/Page/Contents 4 0 R>>", stream("/Type/ObjStm/N 1/First 4/Extends 4 0 R", "4 0 5 0 R")),
		"an unclosed string":         pages("<</Kids[3 0 R]>>", "<</Type/Page/Contents 4 0 R>>", stream("", strings.Repeat("(", 2<<20))),
		"many unclosed objects":      "%PDF-1.4\n" + strings.Repeat("1 0 obj (\n", 100_000),
		"many unclosed streams":      "%PDF-1.4\n" + strings.Repeat("1 0 obj <<>> stream\n", 100_000),
		"a huge object number":       "%PDF-1.4\n2147483647 0 obj <</Type/Page>> endobj",
		"a table of endless size":    "%PDF-1.4\nxref\n2000000000 1\n0000000000 00000 n \ntrailer<</Size 99999999999/Prev 9>>\nstartxref\n9\n%%EOF",
	} {
		t.Run(name, func(t *testing.T) {
			code, sentence := refusal(t, "a.pdf", content, Limits{Unpacked: 6 << 20})
			require.Contains(t, []Code{TooLarge, Damaged, Empty}, code, sentence)
		})
	}
}

// A page that cannot be read does not take the others along.
func TestPDFWithABadPage(t *testing.T) {
	d := mustLoad(t, "a.pdf", writePDF(map[int]string{
		1: "<</Type/Catalog/Pages 2 0 R>>", 2: "<</Type/Pages/Kids[4 0 R 5 0 R]/Resources<</Font<</F1 3 0 R>>>>>>",
		3: "<</Type/Font/Subtype/Type1/Encoding/WinAnsiEncoding>>",
		4: "<</Type/Page/Contents 6 0 R>>", 5: "<</Type/Page/Contents 7 0 R>>",
		6: stream("/Filter/Unheard", "x"), 7: stream("", "BT /F1 9 Tf (text) Tj ET"),
	}, "/Root 1 0 R/Info<</Title(A title)>>"))
	require.Equal(t, []string{"page 2: text"}, outline(d))
	require.Equal(t, "1", d.Metadata["unreadable_pages"])
	require.Equal(t, "A title", d.Title)
	_, sentence := refusal(t, "scan.pdf", makePDF(page()), Limits{})
	require.Contains(t, sentence, "may be a scan")
}

// Small ranges of a character map name a great many characters.
func TestPDFWithManyMappings(t *testing.T) {
	fonts, show := "", "BT "
	objects := map[int]string{1: "<</Type/Catalog/Pages 2 0 R>>", 2: "<</Type/Pages/Kids[4 0 R]>>",
		6: stream("", strings.Repeat("1 beginbfrange <000000> <00ffff> <0041> <010000> <01ffff> <0041> endbfrange ", 50))}
	for i := range 300 {
		objects[100+i] = fmt.Sprintf("<</Type/Font/Subtype/Type0/ToUnicode 6 0 R/FirstChar %d/DescendantFonts[<</W[0 60000 5]>>]>>", i)
		fonts += fmt.Sprintf("/F%d %d 0 R", i, 100+i)
		show += fmt.Sprintf("/F%d 9 Tf <0001> Tj ", i)
	}
	objects[4] = "<</Type/Page/Contents 5 0 R/Resources<</Font<<" + fonts + ">>>>>>"
	objects[5] = stream("", show+"/F0 9 Tf <000001> Tj ET")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _ = loadText(t, "a.pdf", writePDF(objects, "/Root 1 0 R"), Limits{})
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(2<<30))
}

package loader

import (
	"archive/zip"
	"bytes"
	"fmt"
	"maps"
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
		wordNotes: `<w:footnotes xmlns:w="w"><w:footnote><w:p><w:r><w:t>A ` +
			`footnote.</w:t></w:r></w:p></w:footnote></w:footnotes>`,
		wordCore: `<cp:coreProperties xmlns:cp="c" xmlns:dc="d"><dc:creator>x</dc:creator><dc:title>The  ` +
			`title</dc:title></cp:coreProperties>`,
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
		"<w:p><w:r><w:t>One</w:t><w:tab/><w:t xml:space=\"preserve\"> two "+
		"</w:t></w:r><w:del><w:r><w:delText>gone</w:delText></w:r></w:del><w:r><w:t>three.</w:t><w:br/><w:t>Line</w:t></w:r></w:p>"+
		styled(`<w:pStyle w:val="a5"/>`, "Part")+
		styled(`<w:numPr><w:ilvl w:val="0"/><w:numId w:val="1"/></w:numPr>`, "item one")+
		styled(`<w:numPr><w:ilvl w:val="1"/><w:numId w:val="1"/></w:numPr>`, "inner")+
		styled(`<w:pStyle w:val="lb"/>`, "item two")+
		wordParagraph("After &amp; more.")+
		"<w:tbl><w:tr>"+cell("Name")+cell("Days")+"</w:tr><w:tr>"+cell("Ann")+"<w:tc><w:tbl><w:tr>"+cell("inner")+
		cell("table")+"</w:tr></w:tbl></w:tc></w:tr></w:tbl>"+
		styled(`<w:pStyle w:val="own"/>`, "Deep")+
		"<w:p><mc:AlternateContent><mc:Choice><w:r><w:t>shown</w:t></w:r></mc:Choice><mc:Fallback><w:r><w:t>twice</w:t></w:r></mc:Fallback></mc:AlternateContent></w:p>"))
	require.Equal(t, "The title", d.Title)
	require.Equal(t, []string{
		"Глава: One\t two three.\nLine",
		"Глава > Part: - item one\n  - inner\n- item two\n\nAfter & more.\n\n| Name | Days |\n| Ann | inner table |",
		"Глава > Part > Deep: shown\n\nA footnote.",
	}, outline(d))
	require.True(t, strings.HasPrefix(d.Text, "Before.\n\nГлава"))
	require.Len(t, d.Blocks, 1)
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

// bomb is a Word document with text that is unpacked to that many bytes.
func bomb(t *testing.T, bytes int) string {
	return makeZip(t, map[string]string{wordMain: opening + strings.Repeat("a", bytes)})
}

func le32(n uint32) []byte { return []byte{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)} }

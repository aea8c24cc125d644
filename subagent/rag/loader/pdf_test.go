package loader

import (
	"bytes"
	"compress/flate"
	"compress/zlib"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
)

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
	fmt.Fprintf(&b, "xref\n0 1\n0000000000 65535 f \n%strailer\n<</Size %d%s>>\nstartxref\n%d\n%%%%EOF\n", table,
		ids[len(ids)-1]+1, trailer, b.Len())
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

// deflateTimes is deflate of data so many times over, which is packed once: the pieces of a stream that are flushed
// apart refer to nothing before them. The checksum at the end is left out.
func deflateTimes(t testing.TB, data string, times int) string {
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.DefaultCompression)
	require.NoError(t, err)
	_, err = w.Write([]byte(data))
	require.NoError(t, err)
	require.NoError(t, w.Flush())
	const header, end = "\x78\x9c", "\x01\x00\x00\xff\xff"
	return header + strings.Repeat(b.String(), times) + end
}

func stream(dict, data string) string {
	return fmt.Sprintf("<<%s/Length %d>>\nstream\n%s\nendstream", dict, len(data), data)
}

func TestPDF(t *testing.T) {
	d := mustLoad(t, "a_report.pdf", makePDF(page("First line,", "second line of infor-", "mation.")+
		page("Caf\\351 \\(open\\)")+page()))
	require.Equal(t, "a report", d.Title)
	require.Equal(t, "First line,\nsecond line of information.\n\nCafé (open)", d.Text)
	require.Equal(t, []string{"page 1: First line,\nsecond line of information.", "page 2: Café (open)"}, outline(d))
}

// Words and paragraphs follow from where the glyphs are put.
func TestPDFSpacing(t *testing.T) {
	require.Equal(t, "Two words here\n\nNew paragraph\nsame one, a form and kerned words",
		mustLoad(t, "a.pdf", writePDF(map[int]string{
			1: "<</Type/Catalog/Pages 2 0 R>>", 2: "<</Type/Pages/Kids[4 0 R]/Count 1>>",
			3: "<</Type/Font/Subtype/Type1/Encoding/WinAnsiEncoding/FirstChar 0/Widths[" + strings.Repeat("500 ", 256) + "]>>",
			4: "<</Type/Page/Contents[5 0 R 6 0 R]/Resources<</Font<</F1 3 0 R>>/XObject<</X 7 0 R>>>>>>",
			5: stream("", "q BT /F1 10 Tf 1 0 0 1 72 700 Tm (Two) Tj 18 0 Td (words) Tj 1 0 0 1 117 700 Tm (here) Tj "+
				"1 0 0 1 72 660 Tm (New paragraph) Tj ET Q BI /W 2 /H 2 /BPC 8 /CS /G ID \x00(\xff< EI "),
			6: stream("",
				"BT /F1 10 Tf 12 TL 72 648 Td (same one, ) Tj ET /X Do BT /F1 10 Tf 172 648 Td "+
					"[(and)-300(ke)20(rned)-250(words)] TJ ET"),
			7: stream("/Type/XObject/Subtype/Form/Resources<</Font<</F2 3 0 R>>>>", "BT /F2 10 Tf 127 648 Td (a form ) Tj ET"),
		}, "/Root 1 0 R")).Text)
}

func TestPDFCharacterMaps(t *testing.T) {
	cmap := "/CIDInit /ProcSet findresource begin 1 begincodespacerange <0000> <ffff> endcodespacerange " +
		"2 beginbfchar <0001> <041F> <0002> <00660069> endbfchar 2 beginbfrange <0010> <0012> <0430> <0020> <0021> " +
		"[<0041> <0042>] endbfrange " +
		"1000000000000 beginbfchar endbfchar"
	objects := map[int]string{
		1: "<</Type/Catalog/Pages 2 0 R>>", 2: "<</Type/Pages/Kids[4 0 R]/Count 1>>",
		3: "<</Type/Font/Subtype/Type0/Encoding/Identity-H/ToUnicode 6 0 R/DescendantFonts[<</DW 600/W[1[500 600]16 18 " +
			"700]>>]>>",
		4: "<</Type/Page/Contents 5 0 R/Resources<</Font<</F1 3 0 R>>>>>>",
		5: stream("/Filter/FlateDecode", deflate(t, "BT /F1 10 Tf <00010010001100120002002000210099> Tj ET")),
		6: stream("/Filter[/FlateDecode]", deflate(t, cmap)),
	}
	require.Equal(t, "ПабвfiAB", mustLoad(t, "a.pdf", writePDF(objects, "/Root 1 0 R")).Text)

	// In an object stream, and with no table at all.
	inner := "1 0 2 " + fmt.Sprint(len(objects[1])+1) + " "
	packed := map[int]string{3: objects[3], 4: objects[4], 5: objects[5], 6: objects[6],
		9: stream(fmt.Sprintf("/Type/ObjStm/N 2/First %d/Filter/FlateDecode", len(inner)),
			deflate(t, inner+objects[1]+" "+objects[2]))}
	whole := writePDF(packed, "/Root 1 0 R")
	require.Equal(t, "ПабвfiAB", mustLoad(t, "a.pdf", whole).Text)
	require.Equal(t, "ПабвfiAB", mustLoad(t, "a.pdf", whole[:strings.Index(whole, "xref")]+"trailer<</Root 1 0 R>>").Text)
}

func TestEncryptedPDF(t *testing.T) {
	zeros := "<" + strings.Repeat("00", 32) + ">"
	content := writePDF(map[int]string{1: "<</Type/Catalog/Pages 2 0 R>>", 2: "<</Type/Pages/Kids[]>>"},
		"/Root 1 0 R/Encrypt<</Filter/Standard/V 2/R 3/O"+zeros+"/U"+zeros+"/P -4>>/ID[<00><00>]")
	code, sentence := refusal(t, "a.pdf", content, Limits{})
	require.Equal(t, Encrypted, code)
	require.Equal(t, "the PDF is encrypted: save it without a password or other protection", sentence)
}

func TestTruncatedPDF(t *testing.T) {
	whole := makePDF(strings.Repeat(page("some text of a page that is long enough"), 20))
	for cut := 20; cut < len(whole); cut += 97 {
		_, _ = loadText(t, "a.pdf", whole[:cut], Limits{}) // sound in any case
	}
	code, _ := refusal(t, "a.pdf", "%PDF-1.4\nnothing", Limits{})
	require.Equal(t, Damaged, code)
}

// What a bomb unpacks to does not fit the memory that a document may take.
func TestPDFBomb(t *testing.T) {
	testtier.Slow(t)
	bomb := deflateTimes(t, strings.Repeat("0", 1<<20), 800)
	code,
		sentence := refusal(t, "a.pdf",
		writePDF(map[int]string{1: "<</Type/Catalog/Pages 2 0 R>>", 2: "<</Type/Pages/Count 1/Kids[3 0 R]>>",
			3: "<</Type/Page/Contents 4 0 R>>", 4: stream("/Filter/FlateDecode", bomb)}, "/Root 1 0 R"), Limits{})
	t.Log(sentence)
	require.Contains(t, []Code{TooLarge, Damaged, Empty}, code)
}

// A page that draws without end is ended by the clock, and by its caller.
func TestEndlessPDF(t *testing.T) {
	testtier.Slow(t)
	objects := map[int]string{1: "<</Type/Catalog/Pages 2 0 R>>", 2: "<</Type/Pages/Count 1/Kids[3 0 R]>>",
		3: "<</Type/Page/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>/XObject<</X 10 0 R>>>>>>", 4: stream("", "/X Do"),
		5: "<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>"}
	for i := range 8 { // each form draws the next one ten times
		objects[10+i] = stream(fmt.Sprintf("/Subtype/Form/Resources<</Font<</F1 5 0 R>>/XObject<</X %d 0 R>>>>", 11+i),
			strings.Repeat("/X Do ", 10))
	}
	objects[18] = stream("/Subtype/Form/Resources<</Font<</F1 5 0 R>>>>", "BT /F1 9 Tf "+
		strings.Repeat("(endless text) Tj ", 100)+"ET")
	endless := writePDF(objects, "/Root 1 0 R")
	mustLoad(t, "a.pdf", makePDF(page("the engine is ready")))
	code, _ := refusal(t, "a.pdf", endless, Limits{Time: 500 * time.Millisecond})
	require.Equal(t, Timeout, code)
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(100*time.Millisecond, cancel)
	_, err := Load(ctx, "a.pdf", "", strings.NewReader(endless), Limits{})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, "as before", mustLoad(t, "a.pdf", makePDF(page("as before"))).Text)
}

func TestPDFsAtOnce(t *testing.T) {
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			text := fmt.Sprintf("the text of number %d", i)
			d, err := Load(context.Background(), "a.pdf", "", strings.NewReader(makePDF(strings.Repeat(page(text), 5))),
				Limits{})
			require.NoError(t, err)
			require.Equal(t, strings.Repeat(text+"\n\n", 4)+text, d.Text)
		})
	}
	all.Wait()
}

// A page that cannot be read does not take the others along.
func TestPDFWithABadPage(t *testing.T) {
	d := mustLoad(t, "a.pdf", writePDF(map[int]string{
		1: "<</Type/Catalog/Pages 2 0 R>>", 2: "<</Type/Pages/Count 2/Kids[4 0 R 5 0 R]/Resources<</Font<</F1 3 0 R>>>>>>",
		3: "<</Type/Font/Subtype/Type1/Encoding/WinAnsiEncoding>>",
		5: "<</Type/Page/Contents 7 0 R>>", 7: stream("", "BT /F1 9 Tf (text) Tj ET"), 8: "<</Title(A title)>>",
	}, "/Root 1 0 R/Info 8 0 R"))
	require.Equal(t, []string{"page 2: text"}, outline(d))
	require.Equal(t, 2, d.Sections[0].Page)
	require.Equal(t, []int{1}, d.Unread)
	require.Equal(t, "A title", d.Title)
	_, sentence := refusal(t, "scan.pdf", makePDF(page()), Limits{})
	require.Contains(t, sentence, "may be a scan")
}

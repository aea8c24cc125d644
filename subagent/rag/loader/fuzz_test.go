package loader

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// fuzzed loads any bytes as a type of file: no panic, no hang, nothing beyond
// the limits, and never another error than a refusal.
func fuzzed(f *testing.F, name string, seeds ...string) {
	for _, s := range seeds {
		f.Add([]byte(s))
		f.Add([]byte(s[:len(s)/2]))
	}
	l := Limits{Bytes: 1 << 20, Text: 1 << 18, Unpacked: 4 << 20, Pages: 50, Rows: 1000, Nesting: 50, Time: 20 * time.Second}
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := loadText(t, name, string(data), l)
		if CodeOf(err) == Timeout {
			t.Fatalf("%d bytes take longer than %s", len(data), l.Time)
		}
		_ = d
		for item, err := range Documents(context.Background(), name, "", strings.NewReader(string(data)), l) {
			sound(t, name, item.Document, err, l)
		}
	})
}

func FuzzText(f *testing.F) {
	fuzzed(f, "a.txt", "text\r\n\n\nтекст", "\xff\xfea\x00b\x00", "\xcf\xf0\xe8\xe2\xe5\xf2 \xec\xe8\xf0", "\x00\x01")
}

func FuzzMarkdown(f *testing.F) {
	fuzzed(f, "a.md", "---\ntitle: x\n---\n# A\n\ntext *b* [l](u) `c`\n\n- a\n  1. b\n\n```\ncode\n```\n\n|a|b|\n|-|-|\n|1|2|\n\n> q\n\n<b>x</b>\n",
		strings.Repeat("> - ", 30), "[a]: b\n[a][a] ![x][a] <http://a.b> ~~s~~ - [x] t\n\nS\n===\n")
}

func FuzzHTML(f *testing.F) {
	fuzzed(f, "a.html", "<title>t</title><h1>a</h1><p>b <a href=x>c</a><table><tr><td>1<td>2</table><pre>x\ny</pre><ul><li>z", strings.Repeat("<div>", 600)+"x",
		"<meta charset=windows-1251>\xcf", "<script>x</script><svg><style>y</svg><blockquote><ol><li><table>")
}

func FuzzPDF(f *testing.F) {
	inner := "1 0 "
	fuzzed(f, "a.pdf", makePDF(page("text", "more")+page("x")), writePDF(map[int]string{
		3: "<</Type/Font/Subtype/Type0/Encoding/Identity-H/ToUnicode 6 0 R/DescendantFonts[<</W[1[5]]>>]>>", 4: "<</Type/Page/Contents 5 0 R/Resources<</Font<</F 3 0 R>>>>>>",
		5: stream("", "q BT /F 9 Tf <0001> Tj [(a)-300<02>]TJ ET Q BI ID x EI"), 6: stream("", "begincodespacerange <00> <ff> endcodespacerange 1 beginbfrange <00> <02> <0041> endbfrange"),
		9: stream(fmt.Sprintf("/Type/ObjStm/N 1/First %d", len(inner)), inner+"<</Pages<</Kids[4 0 R]>>>>"),
	}, "/Root 1 0 R"))
}

func FuzzWord(f *testing.F) {
	fuzzed(f, "a.docx", makeWord(f, wordParagraph("a")+styled(`<w:pStyle w:val="1"/>`, "h")+"<w:tbl><w:tr><w:tc>"+wordParagraph("c")+"</w:tc></w:tr></w:tbl>"))
}

// FuzzWordXML reaches what lies behind the archive's checksums.
func FuzzWordXML(f *testing.F) {
	for _, body := range []string{wordParagraph("a"), "<w:tbl><w:tr><w:tc><w:p/></w:tc>", styled(`<w:numPr><w:ilvl w:val="99"/></w:numPr>`, "x"), "</w:p></w:del>"} {
		f.Add(fmt.Sprintf(wordXML, body))
	}
	f.Fuzz(func(t *testing.T, xml string) {
		_, _ = loadText(t, "a.docx", makeZip(t, map[string]string{wordMain: xml, wordStyles: xml}), Limits{Nesting: 50, Text: 1 << 18})
	})
}

func FuzzCSV(f *testing.F) {
	fuzzed(f, "a.csv", "a,b\n\"x\"\"y\",\"l1\nl2\"\n1,2,3\n", "sep=;\na;b\n1;2", "\"", "a\tb\n\n\n")
}

func FuzzJSON(f *testing.F) {
	fuzzed(f, "a.json", `{"title":"t","text":"x","metadata":{"a":1}}`, `[{"text":"a"},{"b":[1,null,{"c":"d"}]},3]`, `{"a":{"b":[[[1]]]}} {"text":"y"} "z"`, strings.Repeat("[", 60))
}

func FuzzJSONLines(f *testing.F) {
	fuzzed(f, "a.jsonl", "{\"text\":\"a\"}\n\n{broken\n{\"id\":1,\"text\":\"b\"}\r\n", "\xef\xbb\xbf{\"text\":\"\\u0000\"}")
}

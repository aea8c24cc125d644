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
	l := Limits{Bytes: 1 << 20, Text: 1 << 18, Unpacked: 4 << 20, Pages: 50, Rows: 1000, Nesting: 50,
		Time: 20 * time.Second}
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
	fuzzed(f, "a.md",
		"---\ntitle: x\n---\n# A\n\ntext *b* [l](u) `c`\n\n- a\n  1. b\n\n```\ncode\n```\n\n|a|b|\n|-|-|\n|1|2|\n\n> "+
			"q\n\n<b>x</b>\n",
		strings.Repeat("> - ", 30), "[a]: b\n[a][a] ![x][a] <http://a.b> ~~s~~ - [x] t\n\nS\n===\n")
}

func FuzzHTML(f *testing.F) {
	fuzzed(f, "a.html",
		"<title>t</title><h1>a</h1><p>b <a href=x>c</a><table><tr><td>1<td>2</table><pre>x\ny</pre><ul><li>z",
		strings.Repeat("<div>", 600)+"x",
		"<meta charset=windows-1251>\xcf", "<script>x</script><svg><style>y</svg><blockquote><ol><li><table>")
}

func FuzzPDF(f *testing.F) {
	inner := "1 0 "
	fuzzed(f, "a.pdf", makePDF(page("text", "more")+page("x")), writePDF(map[int]string{
		3: "<</Type/Font/Subtype/Type0/Encoding/Identity-H/ToUnicode 6 0 R/DescendantFonts[<</W[1[5]]>>]>>",
		4: "<</Type/Page/Contents 5 0 R/Resources<</Font<</F 3 0 R>>>>>>",
		5: stream("", "q BT /F 9 Tf <0001> Tj [(a)-300<02>]TJ ET Q BI ID x EI"),
		6: stream("", "begincodespacerange <00> <ff> endcodespacerange 1 beginbfrange <00> <02> <0041> endbfrange"),
		9: stream(fmt.Sprintf("/Type/ObjStm/N 1/First %d", len(inner)), inner+"<</Pages<</Kids[4 0 R]>>>>"),
	}, "/Root 1 0 R"))
}

func FuzzWord(f *testing.F) {
	fuzzed(f, "a.docx", makeWord(f, wordParagraph("a")+styled(`<w:pStyle w:val="1"/>`, "h")+"<w:tbl><w:tr><w:tc>"+
		wordParagraph("c")+"</w:tc></w:tr></w:tbl>"))
}

func FuzzSlides(f *testing.F) { fuzzed(f, "a.pptx", makeSlides(f)) }

func FuzzSheets(f *testing.F) {
	fuzzed(f, "a.xlsx", makeSheets(f), makeWorkbook(f, `<row r="2"><c r="B2" t="s"><v>0</v></c></row>`,
		"<si><t>x</t></si>", "<xf/>"))
}

func FuzzOpenDocument(f *testing.F) {
	fuzzed(f, "a.odt", makeOpen(f, "", "<text:h>a</text:h><text:p>b<text:note><text:p>c</text:p></text:note></text:p>"))
}

func FuzzBook(f *testing.F) { fuzzed(f, "a.epub", makeBook(f, nil)) }

func FuzzRTF(f *testing.F) {
	fuzzed(f, "a.rtf",
		`{\rtf1\ansicpg1251{\fonttbl{\f1\fcharset128 x;}}{\info{\title t}}\uc2\u-10179\'aa\'bb{\footnote `+
			`a\par}\trowd\intbl a\cell b\row\pard\v x\par}`,
		`{\rtf1{\*\x{\pict 00}}\bin3 }}}\outlinelevel3 y\par}`)
}

func FuzzMail(f *testing.F) {
	fuzzed(f, "a.eml",
		"From x\nSubject: =?utf-8?B?4pi6?=\nContent-Type: multipart/alternative; "+
			"boundary=b\n\n--b\nContent-Transfer-Encoding: base64\n\nYWJj\n--b\nContent-Type: text/html\n\n<p>x\n--b--\n",
		"Content-Type: message/rfc822\n\nContent-Type: text/csv; name=a.csv\n\na,b\n1,2\n")
}

// FuzzOfficeXML reaches the XML of the formats behind the archive's checksums.
func FuzzOfficeXML(f *testing.F) {
	for _, xml := range []string{"<p:sld><a:tbl><a:tr><a:tc><a:p><a:t>x</a:t></a:p></a:tc></a:tr></a:tbl><p:sp><p:ph type='title'/></p:sp></p:sld>", "</table:table></text:p><table:table><table:table-row><table:table-cell table:number-columns-repeated='99'><text:p>x",
		"<a:tbl><a:tr><a:tc/><a:tc hMerge='1'/><a:tc vMerge='1'/></a:tr></a:tbl><a:pPr lvl='2'><a:buAutoNum type='x' startAt='9'/>",
		"<text:list-style name='L'><text:list-level-style-number level='2' num-format='a'/></text:list-style><text:list style-name='L'>" +
			"<text:list-item start-value='3'><text:p>x<table:table><table:table-row><table:table-cell number-columns-spanned='2' " +
			"number-rows-spanned='3'><text:p>y</text:p></table:table-cell><table:covered-table-cell/></table:table-row>",
		"<row r='2' hidden='1'><c r='ZZ1' t='s'><f/><v>3</v></c></row><cols><col min='1' max='3' " +
			"hidden='1'/></cols><mergeCell ref='A1:B9'/>",
		"<text:list></text:list></text:list><draw:page><draw:frame class='title'><text:h>x"} {
		f.Add(xml)
	}
	f.Fuzz(func(t *testing.T, xml string) {
		l := Limits{Nesting: 50, Text: 1 << 18, Rows: 1000, Time: 20 * time.Second}
		_, _ = loadText(t, "a.odt", makeOpen(t, xml, xml+"<office:spreadsheet>"+xml), l)
		_, _ = loadText(t, "a.xlsx", makeWorkbook(t, xml, xml, xml), l)
		_,
			_ = loadText(t, "a.pptx",
			makeZip(t, map[string]string{"_rels/.rels": relationsXML([3]string{"1", "officeDocument", "ppt/presentation.xml"}),
				"ppt/presentation.xml": `<sldId r:id="a"/>`, "ppt/_rels/presentation.xml.rels": relationsXML([3]string{
					"a", "slide", "slides/slide1.xml",
				}), "ppt/slides/slide1.xml": xml}), l)
	})
}

// FuzzWordXML reaches what lies behind the archive's checksums.
func FuzzWordXML(f *testing.F) {
	for _, body := range []string{wordParagraph("a"), "<w:tbl><w:tr><w:tc><w:p/></w:tc>",
		styled(`<w:numPr><w:ilvl w:val="99"/></w:numPr>`, "x"), "</w:p></w:del>", "<w:txbxContent></w:txbxContent></w:txbxContent><w:p>x",
		`<w:tbl><w:tr><w:trPr><w:gridBefore w:val="2"/></w:trPr><w:tc><w:tcPr><w:gridSpan w:val="3"/><w:vMerge/></w:tcPr>`,
		`<w:abstractNum/><w:num w:numId="1"><w:abstractNumId/><w:lvlOverride/><w:startOverride w:val="-5"/></w:num>`,
		`<w:ddList><w:result w:val="-1"/></w:ddList><w:sdt><w:showingPlcHdr/><w:sdtContent>x</w:sdtContent></w:sdt>`} {
		f.Add(fmt.Sprintf(wordXML, body))
	}
	f.Fuzz(func(t *testing.T, xml string) {
		_, _ = loadText(t, "a.docx", makeZip(t, map[string]string{wordMain: xml, wordStyles: xml}),
			Limits{Nesting: 50, Text: 1 << 18})
	})
}

func FuzzCSV(f *testing.F) {
	fuzzed(f, "a.csv", "a,b\n\"x\"\"y\",\"l1\nl2\"\n1,2,3\n", "sep=;\na;b\n1;2", "\"", "a\tb\n\n\n")
}

func FuzzJSON(f *testing.F) {
	fuzzed(f, "a.json", `{"title":"t","text":"x","metadata":{"a":1}}`, `[{"text":"a"},{"b":[1,null,{"c":"d"}]},3]`,
		`{"a":{"b":[[[1]]]}} {"text":"y"} "z"`, strings.Repeat("[", 60))
}

func FuzzJSONLines(f *testing.F) {
	fuzzed(f, "a.jsonl", "{\"text\":\"a\"}\n\n{broken\n{\"id\":1,\"text\":\"b\"}\r\n",
		"\xef\xbb\xbf{\"text\":\"\\u0000\"}")
}

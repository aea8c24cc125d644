package loader

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// wordParts are the parts of a Word document with a body and what it leads to.
func wordParts(t *testing.T, body string, related [][3]string, more map[string]string) string {
	parts := map[string]string{
		wordMain:                       fmt.Sprintf(wordXML, wordParagraph("First.")+body),
		"word/_rels/document.xml.rels": relationsXML(related...),
	}
	for name, content := range more {
		parts[name] = content
	}
	return makeZip(t, parts)
}

// formPDF is a PDF with an annotation on its page.
func formPDF(annotation, more string) string {
	return writePDF(map[int]string{1: "<</Type/Catalog/Pages 2 0 R/AcroForm<</Fields[6 0 R]>>>>",
		2: "<</Type/Pages/Kids[3 0 R]/Count 1>>",
		3: "<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>/Annots[6 0 R]>>",
		4: stream("", "BT /F1 12 Tf 72 700 Td (The name on this form:) Tj ET"),
		5: "<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>",
		6: "<</Type/Annot/Rect[72 660 300 680]/P 3 0 R" + annotation + ">>",
		7: stream("/Type/XObject/Subtype/Form/BBox[0 0 228 20]/Resources<</Font<</Helv 5 0 R>>>>", more)}, "/Root 1 0 R")
}

// wordNumbering numbers the list 1 as "1." and "1.1", the list 2 as "Step 1:" and the list 3 as the list 1, from 5.
const wordNumbering = `<w:numbering><w:abstractNum w:abstractNumId="0"><w:lvl w:ilvl="0"><w:start w:val="1"/><w:numFmt w:val="decimal"/>` +
	`<w:lvlText w:val="%1."/></w:lvl><w:lvl w:ilvl="1"><w:start w:val="1"/><w:numFmt w:val="decimal"/><w:pStyle w:val="h2"/>` +
	`<w:lvlText w:val="%1.%2"/></w:lvl></w:abstractNum><w:abstractNum w:abstractNumId="1"><w:lvl w:ilvl="0"><w:start w:val="1"/>` +
	`<w:numFmt w:val="upperRoman"/><w:lvlText w:val="Step %1:"/></w:lvl></w:abstractNum><w:abstractNum w:abstractNumId="2">` +
	`<w:lvl w:ilvl="0"><w:numFmt w:val="bullet"/><w:lvlText w:val="&#xF0B7;"/></w:lvl></w:abstractNum>` +
	`<w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num><w:num w:numId="2"><w:abstractNumId w:val="1"/></w:num>` +
	`<w:num w:numId="3"><w:abstractNumId w:val="0"/><w:lvlOverride w:ilvl="0"><w:startOverride w:val="5"/></w:lvlOverride></w:num>` +
	`<w:num w:numId="4"><w:abstractNumId w:val="2"/></w:num></w:numbering>`

// Lists and headings keep the numbers that a reader sees.
func TestNumbers(t *testing.T) {
	t.Parallel()
	inList := func(id, level int, text string) string {
		return styled(fmt.Sprintf(`<w:numPr><w:ilvl w:val="%d"/><w:numId w:val="%d"/></w:numPr>`, level, id), text)
	}
	word := makeZip(t, map[string]string{
		wordMain: fmt.Sprintf(wordXML, styled(`<w:pStyle w:val="h1"/>`, "Scope")+styled(`<w:pStyle w:val="h1"/>`, "Fees")+
			styled(`<w:pStyle w:val="h2"/>`, "Late")+wordParagraph("Words.")+inList(2, 0, "open")+inList(2, 0, "close")+
			inList(4, 0, "dot")+inList(3, 0, "five")+inList(3, 1, "inner")),
		wordStyles: `<w:styles><w:style w:styleId="h0"><w:pPr><w:numPr><w:numId w:val="1"/></w:numPr></w:pPr></w:style>` +
			`<w:style w:styleId="h1"><w:name w:val="heading 1"/><w:basedOn w:val="h0"/></w:style><w:style w:styleId="h2"><w:basedOn ` +
			`w:val="h0"/><w:name w:val="heading 2"/><w:pPr><w:numPr><w:ilvl w:val="1"/></w:numPr></w:pPr></w:style></w:styles>`,
		"word/numbering.xml": wordNumbering,
	})
	number := func(level int, more string) string {
		return fmt.Sprintf(`text:level="%d" style:num-format="1" style:num-suffix="." text:display-levels="%d"%s/>`, level, level, more)
	}
	item := func(text string) string { return `<text:list-item><text:p>` + text + `</text:p></text:list-item>` }
	open := makeZip(t, map[string]string{
		"content.xml": `<office:document-content><office:automatic-styles><text:list-style style:name="L1">` +
			`<text:list-level-style-number ` + number(1, "") + `<text:list-level-style-number ` + number(2, "") +
			`</text:list-style></office:automatic-styles><office:body><office:text><text:h text:outline-level="1">Scope</text:h>` +
			`<text:h text:outline-level="1">Fees</text:h><text:h text:outline-level="2">Late</text:h><text:p>Words.</text:p>` +
			`<text:list text:style-name="L1">` + item("open") + `<text:list-item text:start-value="5"><text:p>five</text:p>` +
			`<text:p>more</text:p><text:list>` + item("inner") + `</text:list></text:list-item></text:list>` +
			`<text:list text:style-name="L1">` + item("again") + `</text:list><text:list>` + item("dot") + `</text:list>` +
			`</office:text></office:body></office:document-content>`,
		"styles.xml": `<office:document-styles><text:outline-style><text:outline-level-style ` + number(1, "") +
			`<text:outline-level-style ` + number(2, "") + `</text:outline-style></office:document-styles>`,
	})
	drawnItem := func(properties, text string) string {
		return `</a:p><a:p><a:pPr` + properties + `</a:pPr><a:r><a:t>` + text + `</a:t></a:r>`
	}
	for name, c := range map[string]struct{ content, want string }{
		"a.docx": {word, "1. Scope\n\n2. Fees\n\n2.1 Late\n\nWords.\n\nStep I: open\nStep II: close\n- dot\n5. five\n  5.1 inner"},
		"a.odt":  {open, "1. Scope\n\n2. Fees\n\n2.1. Late\n\nWords.\n\n1. open\n5. five\n- more\n  5.1. inner\n\n1. again\n\n- dot"},
		"a.pptx": {makeSlide(t, drawnItem(`><a:buAutoNum type="arabicPeriod"/>`, "open")+
			drawnItem(`><a:buAutoNum type="arabicPeriod"/>`, "close")+drawnItem(` lvl="1"><a:buAutoNum type="alphaLcParenBoth" startAt="3"/>`,
			"inner")+drawnItem(`>`, "none")+drawnItem(`><a:buAutoNum type="romanUcParenR"/>`, "again")),
			"1. open\n2. close\n(c) inner\nnone\nI) again"},
		"a.html": {`<ol start=4 type=a><li>four<ol><li value=7>seven<li>eight</ol><li>five</ol><ol reversed><li>x<li>y</ol>`,
			"d. four\n  7. seven\n  8. eight\ne. five\n\n2. x\n1. y"},
		"a.md": {"3. three\n4. four\n\n   more\n", "3. three\n4. four\n  more"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := mustLoad(t, name, c.content)
			require.Equal(t, c.want, d.Text)
			if strings.Contains(c.want, "Scope") {
				require.Equal(t, []string{"Fees", "Late"}, d.Sections[len(d.Sections)-1].Path)
			}
		})
	}
}

// An element of each format that bears text is loaded, or counted. want is what the text has, "" for one that is counted.
func TestNothingIsLost(t *testing.T) {
	t.Parallel()
	mail := func(kind, body string) string {
		return "Subject: s\nContent-Type: multipart/" + kind + "; boundary=b\n\n" + body
	}
	text := func(s string) string { return `<w:r><w:t xml:space="preserve">` + s + `</w:t></w:r>` }
	slideWith := func(xml string) string {
		return makeSlide(t, `<a:r><a:t>First</a:t></a:r></a:p></p:txBody></p:sp>`+xml+`<p:sp><p:txBody><a:p>`)
	}
	drawing := func(parts map[string]string) string {
		return makeWorkbookWith(t, `<row><c><v>1</v></c></row>`, "", "", parts)
	}
	odt := func(body string) string {
		return makeOpen(t, "", "<office:text><text:p>First.</text:p>"+body+"</office:text>")
	}
	code := func(kind string) string { return `<w:r><w:fldChar w:fldCharType="` + kind + `"/></w:r>` }
	level := func(level int, text, more string) string {
		return fmt.Sprintf(`<w:lvl w:ilvl="%d"><w:start w:val="1"/>%s<w:lvlText w:val="%s"/></w:lvl>`, level, more, text)
	}
	// The list 1 has these levels, the list 2 begins the second of them at 5, the list 3 is that of a style.
	numbered := func(levels, styles string, items ...string) string {
		body := ""
		for _, item := range items {
			body += `<w:p><w:pPr><w:numPr><w:ilvl w:val="` + item[1:2] + `"/><w:numId w:val="` + item[:1] + `"/></w:numPr></w:pPr>` + text(item[2:]) + `</w:p>`
		}
		return makeZip(t, map[string]string{wordMain: fmt.Sprintf(wordXML, wordParagraph("First.")+body), wordStyles: `<w:styles>` + styles + `</w:styles>`,
			"word/numbering.xml": `<w:numbering><w:abstractNum w:abstractNumId="1"><w:numStyleLink w:val="L"/></w:abstractNum><w:abstractNum w:abstractNumId="0">` +
				`<w:styleLink w:val="L"/>` + levels + `</w:abstractNum><w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num><w:num w:numId="2"><w:abstractNumId ` +
				`w:val="0"/><w:lvlOverride w:ilvl="1"><w:startOverride w:val="5"/></w:lvlOverride></w:num><w:num w:numId="3"><w:abstractNumId w:val="1"/></w:num></w:numbering>`})
	}
	for _, c := range []struct{ name, element, content, want string }{
		// Word
		{"a.docx", "item without text", numbered(level(0, "%1.", ""), "", "10one", "10", "10Zebra"), "3. Zebra"},
		{"a.docx", "level that never starts again", numbered(level(0, "%1.", "")+level(1, "Q%2", `<w:lvlRestart w:val="0"/>`), "", "10a", "11b", "10c", "11Zebra"), "Q2 Zebra"},
		{"a.docx", "legal numbers", numbered(level(0, "%1.", `<w:numFmt w:val="upperRoman"/>`)+level(1, "%1.%2", `<w:isLgl/>`), "", "10a", "10b", "11Zebra"), "2.1 Zebra"},
		{"a.docx", "list of a style", numbered(level(0, "Step %1:", ""), "", "30a", "30Zebra"), "Step 2: Zebra"},
		{"a.docx", "one level starts anew", numbered(level(0, "%1.", "")+level(1, "%1.%2", ""), "", "10a", "10b", "11c", "21Zebra"), "2.5 Zebra"},
		{"a.docx", "symbol", wordParts(t, "<w:p>"+text("if ")+`<w:r><w:sym w:font="Symbol" w:char="F0A3"/></w:r>`+text(" 5")+
			`<w:r><w:sym w:font="Wingdings" w:char="F0FC"/></w:r></w:p>`, nil, nil), "if ≤ 5✓"},
		{"a.docx", "text in a font of symbols", wordParts(t, `<w:p><w:r><w:rPr><w:rFonts w:ascii="Symbol"/></w:rPr><w:t>a</w:t></w:r></w:p>`,
			nil, nil), "α"},
		{"a.docx", "drop-down", wordParts(t, "<w:p>"+text("Is ")+`<w:r><w:fldChar><w:ffData><w:ddList><w:result w:val="2"/><w:listEntry `+
			`w:val="a"/><w:listEntry w:val="b"/><w:listEntry w:val="Zebra"/><w:default w:val="0"/></w:ddList></w:ffData></w:fldChar></w:r></w:p>`, nil, nil), "Is Zebra"},
		{"a.docx", "check box", wordParts(t, "<w:p>"+text("Paid: ")+`<w:r><w:fldChar><w:ffData><w:checkBox><w:default w:val="0"/><w:checked/>`+
			`</w:checkBox></w:ffData></w:fldChar></w:r></w:p>`, nil, nil), "Paid: [x]"},
		{"a.docx", "placeholder prompt", wordParts(t, `<w:sdt><w:sdtPr><w:showingPlcHdr/></w:sdtPr><w:sdtContent>`+wordParagraph("Click here")+
			`</w:sdtContent></w:sdt><w:sdt><w:sdtContent>`+wordParagraph("Zebra")+`</w:sdtContent></w:sdt>`, nil, nil), "Zebra"},
		{"a.docx", "prompt", wordParts(t, `<w:sdt><w:sdtPr><w:showingPlcHdr/></w:sdtPr><w:sdtContent>`+wordParagraph("Click here")+
			`</w:sdtContent></w:sdt>`, nil, nil), ""},
		{"a.docx", "diagram", wordParts(t, `<w:p>`+text("Plan")+`<w:r><dgm:relIds r:dm="d"/></w:r></w:p>`, [][3]string{{"d", "diagramData",
			"diagrams/d.xml"}}, map[string]string{"word/diagrams/d.xml": `<dgm:pt><dgm:t>` + drawn("Zebra") + `</dgm:t></dgm:pt>`}), "Zebra"},
		{"a.docx", "embedded HTML", wordParts(t, `<w:altChunk r:id="c"/>`+wordParagraph("After."), [][3]string{{"c", "aFChunk", "c.html"}},
			map[string]string{"word/c.html": "<p>Zebra"}), "Zebra\n\nAfter."},
		{"a.docx", "other prefixes", wordParts(t, `<w:altChunk xmlns:x="http://schemas.openxmlformats.org/officeDocument/2006/relationships" x:id="c"/>`,
			[][3]string{{"c", "aFChunk", "c.html"}}, map[string]string{"word/c.html": "<p>Zebra"}), "Zebra"},
		{"a.docx", "embedded RTF", wordParts(t, `<w:altChunk r:id="c"/>`, [][3]string{{"c", "aFChunk", "c.rtf"}},
			map[string]string{"word/c.rtf": `{\rtf1 Zebra}`}), "Zebra"},
		{"a.docx", "embedded junk", wordParts(t, `<w:altChunk r:id="c"/>`, [][3]string{{"c", "aFChunk", "c.docx"}},
			map[string]string{"word/c.docx": `PK\x03\x04`}), ""},
		{"a.docx", "box in a sentence", wordParts(t, `<w:p>`+text("It is ")+`<w:r><w:txbxContent><w:p>`+text("Zebra")+
			`</w:p><w:tbl><w:tr><w:tc>`+wordParagraph("cell")+`</w:tc></w:tr></w:tbl></w:txbxContent></w:r>`+text("9 crowns.")+`</w:p>`, nil, nil),
			"It is 9 crowns.\n\nZebra\n\n| cell |"},
		{"a.docx", "box in a cell", wordParts(t, `<w:tbl><w:tr><w:tc><w:p>`+text("5")+`<w:r><w:txbxContent><w:p>`+text("Zebra")+
			`</w:p></w:txbxContent></w:r>`+text("7")+`</w:p></w:tc></w:tr></w:tbl>`, nil, nil), "| 57 Zebra |"},
		{"a.docx", "shown again", wordParts(t, `<w:p><w:r><w:rPr><w:rPrChange><w:rPr><w:vanish/></w:rPr></w:rPrChange></w:rPr><w:t>Zebra</w:t>`+
			`</w:r></w:p>`, nil, map[string]string{wordStyles: `<w:styles><w:style><w:rPr><w:rPrChange><w:rPr><w:vanish/></w:rPr></w:rPrChange>` +
			`</w:rPr></w:style></w:styles>`}), "Zebra"},
		{"a.docx", "reading in a field", wordParts(t, `<w:p>`+text("in ")+`<w:r><w:instrText>EQ \* jc2 \o\ad(\s\up 9(とうきょう),東京)</w:instrText>`+
			`</w:r><w:r><w:fldChar w:fldCharType="end"/></w:r>`+text("へ")+`</w:p>`, nil, nil), "in 東京へ"},
		{"a.docx", "fields in each other", wordParts(t, `<w:p>`+text("Dear ")+code("begin")+text("7")+code("begin")+text("8")+code("separate")+text("lion")+
			code("end")+code("separate")+text("Zebra")+code("end")+text(", hi")+`</w:p>`, nil, nil), "Dear Zebra, hi"},
		{"a.docx", "symbol in a field", wordParts(t, `<w:p>`+text("x ")+code("begin")+`<w:r><w:instrText> SYMBOL 163 \f "Symbol" \s 10 </w:instrText></w:r>`+
			code("separate")+code("end")+`<w:fldSimple w:instr="SYMBOL 179 \f Symbol"/></w:p>`, nil, nil), "x ≤≥"},
		{"a.docx", "formula in a field", wordParts(t, `<w:p><w:r><w:instrText>EQ \f(1,2)</w:instrText></w:r><w:r><w:fldChar/></w:r></w:p>`, nil, nil), ""},
		{"a.docx", "moved text", wordParts(t, `<w:p><w:moveFrom>`+text("gone")+`</w:moveFrom><w:moveTo>`+text("Zebra")+`</w:moveTo></w:p>`, nil, nil), "Zebra"},
		{"a.docx", "initial", wordParts(t, `<w:p><w:pPr><w:framePr w:dropCap="drop"/></w:pPr>`+text("Z")+`</w:p>`+wordParagraph("ebra"), nil, nil),
			"Zebra"},
		{"a.docx", "picture's description", wordParts(t, `<w:p>`+text("See")+`<w:r><w:drawing><wp:docPr descr="A zebra"/></w:drawing></w:r>`+
			`<w:r><w:drawing><wp:docPr descr="C:\a b\pic.jpg"/></w:drawing></w:r></w:p>`, nil, nil), "See A zebra"},
		// PowerPoint
		{"a.pptx", "footer", slideWith(shapeXML("ftr", "Zebra")), ""},
		{"a.pptx", "hidden shape", slideWith(`<p:sp><p:nvSpPr><p:cNvPr hidden="1"/></p:nvSpPr><p:txBody>` + drawn("Zebra") + `</p:txBody></p:sp>`), ""},
		{"a.pptx", "hidden group", slideWith(`<p:grpSp><p:cNvPr hidden="1"/><p:sp><p:cNvPr descr="Zebra"/><p:txBody>` + drawn("Zebra") + `</p:txBody></p:sp></p:grpSp>`), ""},
		{"a.pptx", "hidden table", slideWith(`<p:graphicFrame><p:cNvPr hidden="1"/><a:tbl><a:tr><a:tc>` + drawn("Zebra") + `</a:tc></a:tr></a:tbl></p:graphicFrame>`), ""},
		{"a.pptx", "list of a shape", slideWith(`<p:sp><p:txBody><a:lstStyle><a:lvl1pPr><a:buAutoNum type="arabicPeriod"/></a:lvl1pPr></a:lstStyle><a:p><a:pPr><a:buNone/></a:pPr>` +
			`<a:r><a:t>lion</a:t></a:r></a:p>` + drawn("Zebra") + `</p:txBody></p:sp>`), "lion\n1. Zebra"},
		{"a.pptx", "symbol", slideWith(`<p:sp><p:txBody><a:p><a:r><a:rPr><a:sym typeface="Symbol"/></a:rPr><a:t>&#xF0A3;</a:t></a:r></a:p></p:txBody></p:sp>`), "≤"},
		{"a.pptx", "picture's description", slideWith(`<p:pic><p:nvPicPr><p:cNvPr descr="A zebra"/></p:nvPicPr></p:pic>`), "A zebra"},
		// Excel
		{"a.xlsx", "text box", drawing(map[string]string{"xl/worksheets/_rels/sheet1.xml.rels": relationsXML([3]string{"1", "drawing", "../drawings/d.xml"}),
			"xl/drawings/d.xml": `<xdr:wsDr><xdr:sp><xdr:txBody>` + drawn("Zebra") + `</xdr:txBody></xdr:sp></xdr:wsDr>`}), "Zebra"},
		{"a.xlsx", "diagram", drawing(map[string]string{"xl/worksheets/_rels/sheet1.xml.rels": relationsXML([3]string{"1", "drawing", "../drawings/d.xml"}),
			"xl/drawings/d.xml": `<xdr:wsDr/>`, "xl/drawings/_rels/d.xml.rels": relationsXML([3]string{"1", "diagramData", "../diagrams/d.xml"}),
			"xl/diagrams/d.xml": `<dgm:pt><dgm:t>` + drawn("Zebra") + `</dgm:t></dgm:pt>`}), "Zebra"},
		{"a.xlsx", "header of a page", makeWorkbook(t, `<row><c><v>1</v></c></row></sheetData><headerFooter><oddHeader>Zebra</oddHeader></headerFooter><sheetData>`,
			"", ""), ""},
		{"a.xlsx", "comment", drawing(map[string]string{"xl/worksheets/_rels/sheet1.xml.rels": relationsXML([3]string{"1", "comments", "../c.xml"}),
			"xl/c.xml": `<comments><comment>Zebra</comment></comments>`}), ""},
		// OpenDocument
		{"a.odt", "placeholder prompt", odt(`<text:p>x<text:placeholder>Click here</text:placeholder></text:p>`), ""},
		{"a.odt", "drop-down", odt(`<text:p>x<text:drop-down><text:label/>Zebra</text:drop-down></text:p>`), "xZebra"},
		{"a.odt", "picture's description", odt(`<text:p>x<draw:frame><svg:desc>A zebra</svg:desc></draw:frame></text:p>`), "x\n\nA zebra"},
		{"a.odt", "hidden paragraph", odt(`<text:p>lion<text:hidden-paragraph text:is-hidden="true"/>Zebra</text:p>`), ""},
		{"a.odt", "hidden section", odt(`<text:section text:is-hidden="true"><text:p>Zebra</text:p></text:section>`), ""},
		{"a.ods", "value without a paragraph", makeOpen(t, "", `<office:spreadsheet><table:table><table:shapes><text:p>lion</text:p></table:shapes><table:table-row>`+
			`<table:table-cell office:value="42"/><table:table-cell office:value="7"><text:p/></table:table-cell><table:table-cell office:string-value="Zebra"/>`+
			`</table:table-row></table:table></office:spreadsheet>`), "lion\n\n42 Zebra"},
		{"a.odt", "form control", odt(`<draw:control/>`), ""},
		{"a.odt", "box in a heading", odt(`<text:h text:outline-level="1"><draw:text-box><text:p>Zebra</text:p></draw:text-box>Terms</text:h>`),
			"Terms\n\nZebra"},
		{"a.odt", "symbol", makeOpen(t, `<style:style style:name="S"><style:text-properties style:font-name="Symbol"/></style:style>`,
			`<office:text><text:p>x <text:span text:style-name="S">&#xF0A3;</text:span></text:p></office:text>`), "x ≤"},
		// RTF
		{"a.rtf", "star in a group", `{\rtf1 First {\b bold \*\unknown Zebra} after}`, "Zebra"},
		{"a.rtf", "header", `{\rtf1 First {\header Zebra}}`, ""},
		{"a.rtf", "form field", `{\rtf1 First {\field{\*\fldinst FORMDROPDOWN{\*\formfield{\*\ffl Zebra}}}{\fldrslt}}}`, ""},
		{"a.rtf", "symbol", `{\rtf1{\fonttbl{\f1\fcharset2 Symbol;}{\f2\fcharset2 Wingdings;}}x {\f1\'a3}{\f1\u-3917 ?}{\f2\'fc}}`, "x ≤≥✓"},
		{"a.rtf", "symbol in a field", `{\rtf1 x {\field{\*\fldinst {SYMBOL 163 \\f "Symbol"}}{\fldrslt }}}`, "x ≤"},
		{"a.rtf", "box in a sentence", `{\rtf1 It is {\shp{\*\shpinst{\shptxt \pard lion\par Zebra\par}}{\shprslt no}}9 crowns.\par End}`, "It is 9 crowns.\n\nlion\n\nZebra\n\nEnd"},
		{"a.rtf", "old box in a heading", `{\rtf1 \pard\outlinelevel0 Te{\*\do{\dptxbxtext \pard Zebra}}rms\par}`, "Terms\n\nZebra"},
		{"a.rtf", "box in a cell", `{\rtf1 \trowd\cellx1\cellx2\pard\intbl a{\*\shpinst{\shptxt \pard Zebra\par}}b\cell 7\cell\row \pard End}`, "| ab | 7 |\n\nEnd\n\nZebra"},
		{"a.rtf", "list in a cell", `{\rtf1 \trowd\cellx1\cellx2\pard\intbl {\listtext\pard\plain 1.\tab}Zebra\par {\listtext\pard 2.\tab}b\cell 7\cell\row}`, "| 1. Zebra 2. b | 7 |"},
		{"a.rtf", "byte outside of the font's code page", `{\rtf1\ansicpg1252{\fonttbl{\f1\fcharset128 OpenSymbol;}}{\f1\'96 Zebra}}`, "– Zebra"},
		{"a.rtf", "two alphabets", `{\rtf1 First {\upr{Zebra}{\*\ud{\u1103?}}}}`, "Zebra"},
		{"a.rtf", "reading in a field", `{\rtf1 in {\field{\*\fldinst {EQ \\* jc2 \\o\\ad(\\s\\up 9(\u12392?),\u26481?)}}{\fldrslt }}}`, "in 東"},
		// HTML
		{"a.md", "bracketed line in code", "```ts\n  [key: string]: Zebra;\n```\n", "[key: string]: Zebra;"},
		{"a.html", "formula", "<p>Zebra <math>\n<mfrac>\n<mn>1</mn>\n<mn>2</mn>\n</mfrac> <msubsup>\n<mn>3</mn>\n<mn>4</mn>\n<mn>5</mn>\n" +
			"</msubsup></math>", "Zebra 1 /2 3 _4 ^5"},
		{"a.xhtml", "elements of XML", `<html xmlns="http://www.w3.org/1999/xhtml" xmlns:m="http://www.w3.org/1998/Math/MathML"><head><title/><script
			src="x"/></head><body><p>One <i/>two<br/><del/>10<m:math><m:msup><m:mi/><m:mn>6</m:mn></m:msup></m:math></p><p><![CDATA[4 < Zebra]]> or <b>&lt;x/></b></p></body></html>`,
			"One two\n10^6\n\n4 < Zebra or <x/>"},
		{"a.html", "button", `<p>First<h3><button>Zebra here?</button></h3><p>Yes.`, "Zebra here?\n\nYes."},
		{"a.html", "choice", `<p>Status: <select><option>draft<option selected>Zebra</select>`, "Status: Zebra"},
		{"a.html", "field", `<p>Name: <input value=Zebra>`, "Name: Zebra"},
		{"a.html", "check box", `<p><input type=checkbox checked>Zebra`, "[x] Zebra"},
		{"a.html", "long field", `<p>First<textarea>Zebra</textarea>`, "Zebra"},
		{"a.html", "menu", `<p>First<nav>Zebra</nav>`, ""},
		{"a.html", "drawing", `<p>First<svg><text>Zebra</text></svg>`, ""},
		{"a.html", "frame", `<p>First<iframe src=x></iframe>`, ""},
		{"a.html", "film", `<p>First<video>Zebra</video>`, ""},
		{"a.html", "text of a picture", `<p>First<img alt=Zebra>`, "Zebra"},
		{"a.html", "caption", `<table><caption>Zebra</caption><tr><td>1<td>2</table>`, "Zebra"},
		{"a.html", "list in a cell", `<table><tr><th>a<th>b<tr><td>1<td><ul><li>Zebra<li>lion</ul></table>`, "| 1 | Zebra lion |"},
		{"a.html", "brackets", `<p>[Warning]: Zebra<p>[^1]: lion`, "[Warning]: Zebra\n\n[^1]: lion"},
		{"a.html", "fraction", `<p>Use <math><mfrac><mn>1</mn><mn>2</mn></mfrac></math> cup`, "Use 1/2 cup"},
		// Markdown
		{"a.md", "footnote of a word", "Due[^1].\n\n[^1]: Zebra.\n", "Due[^1].\n\n[^1]: Zebra."},
		{"a.md", "line with brackets", "First.\n\n[Note]: Zebra\n", "[Note]: Zebra"},
		{"a.md", "rows of HTML", "First.\n\n<table>\n\n<tr><td>5</td><td>7</td></tr>\n\n</table>\n", "| 5 | 7 |"},
		{"a.md", "front matter of Windows", "\ufeff---\r\ntitle: T\r\n---\r\nZebra", "Zebra"},
		{"a.md", "tag that is never closed", "Set the <title> and <s> here.\n\nThe <select> too.\n\n<svg>\n\nZebra <dir>", "Zebra <dir>"},
		{"a.md", "tags of a paragraph", "H<sub>2</sub>O<br>5<sup>2</sup> <b>bold</b> <s>gone</s> <!-- no -->Zebra", "H2O\n5^2 bold Zebra"},
		{"a.md", "two rules", "---\nZebra runs.\n---\n\nFirst.", "Zebra"},
		{"a.md", "front matter", "---  \ntitle: T\ntags:\n  - Zebra\n---\t\nFirst.", ""},
		// PDF
		{"a.pdf", "form value", formPDF("/Subtype/Widget/FT/Tx/T(n)/V(Zebra)/DA(/Helv 12 Tf 0 g)/AP<</N 7 0 R>>",
			"/Tx BMC q BT /Helv 12 Tf 2 5 Td (Zebra) Tj ET Q EMC"), "The name on this form:\n\nZebra"},
		{"a.pdf", "form value that is not drawn", formPDF("/Subtype/Widget/FT/Tx/T(n)/V(Zebra)", ""), "Zebra"},
		{"a.pdf", "stale appearance", formPDF("/Subtype/Widget/FT/Tx/T(n)/TU(Who)/V(Zebra)/AP<</N 7 0 R>>", "/Tx BMC EMC"), "Who: Zebra"},
		{"a.pdf", "value beside its label", strings.Replace(formPDF("/Subtype/Widget/FT/Tx/T(n)/V(Zebra)", ""), "/Rect[72 660 300 680]", "/Rect[210 695 300 715]", 1),
			"The name on this form: Zebra"},
		{"a.pdf", "choices", formPDF("/Subtype/Widget/FT/Ch/T(n)/Ff 2097152/Opt[[(1)(Zebra)](b)(c)]/V[(1)(c)]", ""), "Zebra, c"},
		{"a.pdf", "field without a name", formPDF("/Subtype/Widget/FT/Tx/V(Zebra)", ""), "Zebra"},
		{"a.pdf", "tick", formPDF("/Subtype/Widget/FT/Btn/T(Zebra)/V/Yes/AS/Yes", ""), "Zebra: [x]"},
		{"a.pdf", "struck by hand", formPDF("/Subtype/StrikeOut/QuadPoints[0 0 1 0 0 1 1 1]/Contents(Zebra)", ""), ""},
		{"a.pdf", "note on the page", formPDF("/Subtype/FreeText/Contents(Zebra)", ""), "Zebra"},
		{"a.pdf", "drawn note", formPDF("/Subtype/FreeText/Contents(Zebra)/AP<</N 7 0 R>>", "BT /Helv 12 Tf 2 5 Td (Zebra) Tj ET"), "Zebra"},
		{"a.pdf", "comment", formPDF("/Subtype/Text/Contents(Zebra)", ""), ""},
		// Mail
		{"a.eml", "name of an attachment", mail("mixed", "--b\n\nFirst\n--b\nContent-Type: text/plain\nContent-Disposition: attachment; "+
			"filename*0*=utf-8''Z%C3%A9; filename*1*=bra.txt\n\nlion\n--b--\n"), "attachment Zébra.txt\n\nlion"},
		{"a.eml", "name that breaks the rules", mail("mixed", "--b\n\nFirst\n--b\nContent-Type: text/plain\nContent-Disposition: attachment; "+
			"filename=Zébra of May.txt\n\nlion\n--b--\n"), "attachment Zébra of May.txt\n\nlion"},
		{"a.eml", "name of what is not read", mail("mixed", "--b\n\nFirst\n--b\nContent-Type: application/zip\nContent-Disposition: attachment; "+
			"filename=Zebra.zip\n\nlion\n--b--\n"), "Zebra.zip"},
		{"a.eml", "text behind a stub", mail("alternative", "--b\n\nUse an HTML reader.\n--b\nContent-Type: text/html\n\n<p>Zebra costs 9\n--b--\n"), "Zebra costs 9"},
		{"a.eml", "stub of a related part", mail("alternative", "--b\n\nNo HTML.\n--b\nContent-Type: multipart/related; boundary=c\n\n--c\n"+
			"Content-Type: text/html\n\n<p>Zebra costs 9\n--c--\n--b\nContent-Type: text/calendar\n\nBEGIN\n--b--\n"), "Zebra costs 9"},
		{"a.eml", "name in another alphabet", mail("mixed", "--b\nContent-Type: text/plain; name*0*=iso-8859-1''Z%E9; name*1*=bra;\n name*2=\".txt\"\n\nlion\n--b--\n"),
			"attachment Zébra.txt\n\nlion"},
		{"a.eml", "figures of the HTML part", mail("alternative", "--b\n\nThe zebra of the zoo eats much. See the price in the page.\n--b\nContent-Type: "+
			"text/html\n\n<p>The zebra of the zoo eats much. See the price in the page.<p>Zebra costs 9\n--b--\n"), "Zebra costs 9"},
		{"a.eml", "soft line breaks", "Content-Type: text/plain; format=flowed\n\nThe price is nine \nthousand\n> a \n> Zebra\n-- \nAnn\n",
			"The price is nine thousand\n> a Zebra\n-- \nAnn"},
		{"a.eml", "no end", mail("mixed", "--b\nContent-Type: text/plain\n\nZebra"), "Zebra"},
		// Others
		{"a.csv", "names that occur twice", "date,note,note,amount\n2026-01-02,Zebra,cash,9\n2026-01-03,open,card,8\n", "note: Zebra\nnote: cash\namount: 9"},
		{"a.ipynb", "cells", `{"cells":[{"cell_type":"markdown","source":["# T\n","Zebra"]},{"cell_type":"code","source":"x = 1",` +
			`"outputs":[{"text":["out\n"]},{"data":{"text/html":"<p>shown","image/png":""}},{"ename":"E","evalue":"v"}]},` +
			`{"cell_type":"raw","source":"end"}]}`, "T\n\nZebra\n\nx = 1\n\nout\n\nshown\n\nv\n\nend"},
		{"a.ipynb", "objects", `{"cells":[{"cell_type":"code","source":"x","outputs":[{"data":{"text/plain":"<a.b object>","text/html":"<p>Zebra"}},` +
			`{"data":{"text/plain":["<c at 0x7f>"],"text/latex":["lion"]}},{"text":["\u001b[31mred\u001b[0m"]}]}]}`, "x\n\nZebra\n\nlion\n\nred"},
		{"a.ipynb", "old cells", `{"worksheets":[{"cells":[{"cell_type":"code","input":["Zebra"]}]}]}`, "Zebra"},
		{"a.mht", "page", "Subject: T\nContent-Type: multipart/related; boundary=b\n\n--b\nContent-Type: text/html\n\n<p>Zebra\n--b\n" +
			"Content-Type: text/css\nContent-Location: a.css\n\np{}\n--b--\n", "Zebra"},
	} {
		t.Run(c.name+" "+c.element, func(t *testing.T) {
			t.Parallel()
			d := mustLoad(t, c.name, c.content)
			if c.want == "" {
				require.NotEmpty(t, d.Skipped, d.Text)
				require.NotContains(t, d.Text, "Zebra")
				require.NotContains(t, d.Text, "Click here")
				return
			}
			require.Contains(t, d.Text, c.want)
			require.NotContains(t, d.Text, "Click here")
		})
	}
}

// A file within itself, and others that never end.
func TestEmbeddedInItself(t *testing.T) {
	t.Parallel()
	inner, content := `<w:altChunk r:id="c"/>`, ""
	for range deepestFile + 5 {
		content = wordParts(t, inner, [][3]string{{"c", "aFChunk", "c.docx"}}, map[string]string{"word/c.docx": content})
	}
	d := mustLoad(t, "a.docx", content)
	require.Equal(t, deepestFile+1, strings.Count(d.Text, "First."))
	require.Equal(t, map[string]int{"embedded files": 1}, d.Skipped)
}

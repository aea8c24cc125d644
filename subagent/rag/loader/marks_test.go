package loader

import (
	"fmt"
	"html"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// piece is a run of text with one mark.
type piece struct {
	text string
	mark mark
}

// markCases are paragraphs, and what every format makes of them.
var markCases = []struct {
	name    string
	pieces  []piece
	want    string
	skipped string
}{
	{"note", []piece{{"Fee 500", 0}, {"2", raised}, {" euros.", 0}}, "Fee 500^2 euros.", ""},
	{"exponent", []piece{{"Moves 10", 0}, {"6", raised}, {" litres.", 0}}, "Moves 10^6 litres.", ""},
	{"negative exponent", []piece{{"Weighs 10", 0}, {"-3", raised}, {" grams.", 0}}, "Weighs 10^-3 grams.", ""},
	{"negative exponent of two runs", []piece{{"Weighs 10", 0}, {"-", raised}, {"3", raised}, {" grams.", 0}}, "Weighs 10^-3 grams.", ""},
	{"decimal exponent", []piece{{"Is 10", 0}, {".5", raised}, {" long.", 0}}, "Is 10^.5 long.", ""},
	{"note behind a full stop", []piece{{"It costs 500.", 0}, {"2", raised}, {" Next.", 0}}, "It costs 500.^2 Next.", ""},
	{"note behind a sentence", []piece{{"It is cheap.", 0}, {"2", raised}, {" Next.", 0}}, "It is cheap.^2 Next.", ""},
	{"note before a figure", []piece{{"Pay ", 0}, {"1", raised}, {"500 euros.", 0}}, "Pay 1) 500 euros.", ""},
	{"ordinal", []piece{{"The 19", 0}, {"th", raised}, {" century.", 0}}, "The 19th century.", ""},
	{"unit", []piece{{"A room of 20 m", 0}, {"2", raised}, {" here.", 0}}, "A room of 20 m2 here.", ""},
	{"base", []piece{{"Write 101", 0}, {"2", lowered}, {" for five.", 0}}, "Write 101_2 for five.", ""},
	{"formula", []piece{{"Drink H", 0}, {"2", lowered}, {"O daily.", 0}}, "Drink H2O daily.", ""},
	{"struck", []piece{{"Rent ", 0}, {"900", struck}, {" 1,050.", 0}}, "Rent 1,050.", "struck pieces of text"},
	{"struck with its space", []piece{{"Rent", 0}, {" 900 ", struck}, {"1,050.", 0}}, "Rent 1,050.", "struck pieces of text"},
	{"hidden", []piece{{"Public", 0}, {" SECRET", hidden}, {" words.", 0}}, "Public words.", "hidden pieces of text"},
	{"ruby", []piece{{"東", 0}, {"とう", ruby}, {"京", 0}, {"きょう", ruby}, {"へ行く", 0}}, "東京へ行く", ""},
}

const (
	allMarks  = raised | lowered | struck | hidden | ruby
	fontMarks = raised | lowered | struck
)

// markFormats write a paragraph in each format. marks are those that the format can draw.
var markFormats = []struct {
	format *format
	marks  mark
	write  func(t *testing.T, pieces []piece) string
}{
	{plainText, 0, nil}, {csvFile, 0, nil}, {jsonFile, 0, nil}, {jsonLines, 0, nil},
	{htmlPage, allMarks, htmlMarks(map[mark]string{raised: "sup", lowered: "sub", struck: "del", hidden: "span hidden"})},
	{htmlPage, allMarks, htmlMarks(map[mark]string{raised: `span style="vertical-align: super"`,
		lowered: `span style="vertical-align:sub;color:red"`, struck: `span style="text-decoration: line-through red"`,
		hidden: `span style="display:none"`})},
	{htmlPage, allMarks, func(t *testing.T, pieces []piece) string {
		return "<style>" + markSheet + "</style>" + htmlMarks(map[mark]string{raised: "i class=up", lowered: "i id=down",
			struck: "i class=old", hidden: `b class="x gone"`})(t, pieces)
	}},
	{htmlPage, fontMarks | ruby, func(t *testing.T, pieces []piece) string { // too deep for a tree
		return strings.Repeat("<b><div>", 300) +
			htmlMarks(map[mark]string{raised: "sup", lowered: "sub", struck: "s"})(t, pieces)
	}},
	{markdown, fontMarks | ruby, func(t *testing.T, pieces []piece) string {
		return htmlPieces(pieces, map[mark]string{raised: "sup", lowered: "sub", struck: "strike"})
	}},
	{markdown, fontMarks | ruby, func(t *testing.T, pieces []piece) string {
		return "<div>" + htmlPieces(pieces, map[mark]string{raised: "sup", lowered: "sub", struck: "s"}) + "</div>"
	}},
	{bookFile, allMarks, func(t *testing.T, pieces []piece) string {
		return makeZip(t, map[string]string{
			"META-INF/container.xml": `<container><rootfiles><rootfile full-path="c.opf"/></rootfiles></container>`,
			"c.opf": `<package><manifest><item id="a" href="a.xhtml" media-type="application/xhtml+xml"/></manifest>` +
				`<spine><itemref idref="a"/></spine></package>`,
			"s.css": markSheet, "a.xhtml": `<html><head><link rel="stylesheet" href="s.css"/></head></html>` + htmlMarks(map[mark]string{
				raised: `i class="up"`, lowered: `i id="down"`, struck: `i class="old"`, hidden: `b class="gone"`})(t, pieces),
		})
	}},
	{mailFile, allMarks, func(t *testing.T, pieces []piece) string {
		return "Content-Type: text/html; charset=utf-8\r\n\r\n" +
			htmlMarks(map[mark]string{raised: "sup", lowered: "sub", struck: "del", hidden: "span hidden"})(t, pieces)
	}},
	{webArchive, allMarks, func(t *testing.T, pieces []piece) string {
		return "Content-Type: multipart/related; boundary=b\n\n--b\nContent-Type: text/html; charset=utf-8\n\n" +
			htmlMarks(map[mark]string{raised: "sup", lowered: "sub", struck: "s", hidden: "i hidden"})(t, pieces) + "\n--b--\n"
	}},
	{notebook, fontMarks | ruby, func(t *testing.T, pieces []piece) string {
		return makeNotebook(t, htmlPieces(pieces, map[mark]string{raised: "sup", lowered: "sub", struck: "strike"}))
	}},
	{wordFile, allMarks, wordMarks(map[mark]string{raised: `<w:vertAlign w:val="superscript"/>`,
		lowered: `<w:vertAlign w:val="subscript"/>`, struck: `<w:dstrike/>`, hidden: `<w:vanish/>`})},
	{wordFile, allMarks, wordMarks(map[mark]string{raised: `<w:rStyle w:val="up"/>`, lowered: `<w:position w:val="-6"/>`,
		struck: `<w:rStyle w:val="gone"/>`, hidden: `<w:rStyle w:val="secret"/>`})},
	{slidesFile, fontMarks, slideMarks}, {sheetsFile, fontMarks | ruby, sheetMarks(true)},
	{sheetsFile, fontMarks | ruby, sheetMarks(false)},
	{openFile, allMarks, openMarks}, {rtfFile, fontMarks | hidden, rtfMarks(map[mark]string{raised: `\super`,
		lowered: `\sub`, struck: `\strike`, hidden: `\v`})},
	{rtfFile, fontMarks | hidden, rtfMarks(map[mark]string{raised: `\up6`, lowered: `\dn6`, struck: `\striked1`, hidden: `\v1`})},
	{pdfFile, offLine, pdfMarks},
}

// markSheet is a style sheet that draws marks.
const markSheet = `.up{vertical-align:super;font-size:8pt} #down{vertical-align:sub} i.old{text-decoration:line-through} b.gone{display:none}
	.gone{display:inline} u{vertical-align:baseline}`

// each joins what write makes of pieces.
func each(pieces []piece, write func(p piece) string) string {
	var out strings.Builder
	for _, p := range pieces {
		out.WriteString(write(p))
	}
	return out.String()
}

func htmlPieces(pieces []piece, tags map[mark]string) string {
	out := each(pieces, func(p piece) string {
		tag := tags[p.mark]
		switch {
		case p.mark == ruby:
			return "<rp>(</rp><rt>" + p.text + "</rt><rp>)</rp>"
		case tag == "":
			return html.EscapeString(p.text)
		}
		name, _, _ := strings.Cut(tag, " ")
		return "<" + tag + ">" + html.EscapeString(p.text) + "</" + name + ">"
	})
	if strings.Contains(out, "<rt>") {
		out = "<ruby>" + out + "</ruby>"
	}
	return out
}

func htmlMarks(tags map[mark]string) func(*testing.T, []piece) string {
	return func(_ *testing.T, pieces []piece) string {
		return "<html><head><meta charset=utf-8></head><body><p>" + htmlPieces(pieces, tags) + "</p></body></html>"
	}
}

func wordMarks(properties map[mark]string) func(*testing.T, []piece) string {
	return func(t *testing.T, pieces []piece) string {
		body := each(pieces, func(p piece) string {
			run := `<w:r><w:rPr>` + properties[p.mark] + `<w:rPrChange><w:rPr><w:strike/></w:rPr></w:rPrChange></w:rPr><w:t>` +
				p.text + `</w:t></w:r>`
			if p.mark == ruby {
				return `<w:r><w:ruby><w:rt>` + run + `</w:rt><w:rubyBase></w:rubyBase></w:ruby></w:r>`
			}
			return run
		})
		return makeZip(t, map[string]string{
			wordMain: fmt.Sprintf(wordXML, `<w:p><w:pPr><w:pStyle w:val="plain"/><w:rPr><w:strike/></w:rPr></w:pPr>`+body+`</w:p>`),
			wordStyles: `<w:styles><w:style w:styleId="up"><w:basedOn w:val="up0"/></w:style>` +
				`<w:style w:styleId="up0"><w:rPr><w:vertAlign w:val="superscript"/></w:rPr></w:style>` +
				`<w:style w:styleId="gone"><w:rPr><w:strike/></w:rPr></w:style>` +
				`<w:style w:styleId="plain"><w:basedOn w:val="gone"/><w:rPr><w:strike w:val="0"/></w:rPr></w:style>` +
				`<w:style w:styleId="secret"><w:rPr><w:vanish/></w:rPr></w:style></w:styles>`,
		})
	}
}

func slideMarks(t *testing.T, pieces []piece) string {
	attributes := map[mark]string{raised: `baseline="30000"`, lowered: `baseline="-25000"`, struck: `strike="sngStrike"`}
	runs := each(pieces, func(p piece) string {
		return `<a:r><a:rPr ` + attributes[p.mark] + `/><a:t>` + p.text + `</a:t></a:r>`
	})
	return makeSlide(t, runs)
}

// makeSlide makes a presentation of one paragraph.
func makeSlide(t *testing.T, runs string) string {
	return makeZip(t, map[string]string{
		"_rels/.rels":                     relationsXML([3]string{"1", "officeDocument", "ppt/presentation.xml"}),
		"ppt/presentation.xml":            `<p:presentation><p:sldIdLst><p:sldId r:id="a"/></p:sldIdLst></p:presentation>`,
		"ppt/_rels/presentation.xml.rels": relationsXML([3]string{"a", "slide", "slides/slide1.xml"}),
		"ppt/slides/slide1.xml":           `<p:sld><p:sp><p:txBody><a:p>` + runs + `</a:p></p:txBody></p:sp></p:sld>`,
	})
}

func sheetMarks(shared bool) func(*testing.T, []piece) string {
	properties := map[mark]string{raised: `<vertAlign val="superscript"/>`, lowered: `<vertAlign val="subscript"/>`,
		struck: `<strike/>`}
	return func(t *testing.T, pieces []piece) string {
		rich := each(pieces, func(p piece) string {
			text := `<t xml:space="preserve">` + p.text + `</t>`
			if p.mark == ruby {
				return `<rPh sb="0" eb="1">` + text + `</rPh>`
			}
			return `<r><rPr>` + properties[p.mark] + `</rPr>` + text + `</r>`
		})
		if shared {
			return makeWorkbook(t, `<row><c t="s"><v>1</v></c></row>`, `<si><t>x</t></si><si>`+rich+`</si>`, "")
		}
		return makeWorkbook(t, `<row r="1"><c r="A1" t="inlineStr"><is>`+rich+`</is></c></row>`, "", "")
	}
}

func openMarks(t *testing.T, pieces []piece) string {
	names := map[mark]string{raised: "T1", lowered: "T2", struck: "T3", hidden: "T4"}
	style := func(name, properties string) string {
		return `<style:style style:name="` + name + `"><style:text-properties ` + properties + `/></style:style>`
	}
	body := each(pieces, func(p piece) string {
		text := strings.ReplaceAll(p.text, " ", "<text:s/>")
		switch name := names[p.mark]; {
		case p.mark == ruby:
			return `<text:ruby><text:ruby-base></text:ruby-base><text:ruby-text>` + text + `</text:ruby-text></text:ruby>`
		case name != "":
			return `<text:span text:style-name="` + name + `">` + text + `</text:span>`
		}
		return text
	})
	return makeZip(t, map[string]string{
		"content.xml": `<office:document-content><office:automatic-styles>` +
			`<style:style style:name="T1" style:parent-style-name="Up"/>` + style("T2", `style:text-position="-25% 58%"`) +
			style("T3", `style:text-line-through-style="solid" style:text-line-through-type="single"`) +
			style("T4", `text:display="none"`) + `</office:automatic-styles><office:body><office:text><text:p>` + body +
			`</text:p></office:text></office:body></office:document-content>`,
		"styles.xml": `<office:document-styles>` + style("Up", `style:text-position="super 58%"`) + `</office:document-styles>`,
	})
}

func rtfMarks(words map[mark]string) func(*testing.T, []piece) string {
	return func(_ *testing.T, pieces []piece) string {
		return `{\rtf1\ansi ` + each(pieces, func(p piece) string {
			if p.mark == 0 {
				return p.text
			}
			return words[p.mark] + " " + p.text + `\nosupersub\up0\strike0\striked0\v0 `
		}) + `\par}`
	}
}

func pdfMarks(_ *testing.T, pieces []piece) string {
	return makePDF("BT 72 720 Td " + each(pieces, func(p piece) string {
		shape := map[mark]string{0: "/F1 12 Tf 0 Ts", raised: "/F1 7 Tf 5 Ts", lowered: "/F1 7 Tf -3 Ts"}[p.mark]
		return shape + " (" + p.text + ") Tj "
	}) + "ET")
}

// Every format makes the same text of the marks that it can draw. A new format needs a row.
func TestMarks(t *testing.T) {
	t.Parallel()
	rows := map[string]bool{}
	for i, row := range markFormats {
		rows[row.format.label] = true
		for _, c := range markCases {
			marks := mark(0)
			for _, p := range c.pieces {
				marks |= p.mark
			}
			if marks&^row.marks != 0 {
				continue
			}
			t.Run(fmt.Sprintf("%d %s %s", i, row.format.extensions[0], c.name), func(t *testing.T) {
				t.Parallel()
				d := mustLoad(t, "a"+row.format.extensions[0], row.write(t, c.pieces))
				require.Equal(t, c.want, strings.Join(strings.Fields(d.Text), " "))
				skipped := 0
				if c.skipped != "" {
					skipped = 1
				}
				require.Equal(t, skipped, d.Skipped[c.skipped], d.Skipped)
			})
		}
	}
	for _, f := range formats {
		require.True(t, rows[f.label], "add a row for %s to markFormats", f.label)
	}
}

// The exponents of formulas stay apart from their bases.
func TestFormulas(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{
		"a.html": `<p>Moves <math><msup><mn>10</mn><mn>6</mn></msup></math> litres.`,
		"a.pptx": makeSlide(t, `<a:r><a:t>Moves </a:t></a:r><a14:m><m:sSup><m:e><m:r><m:t>10</m:t></m:r></m:e>`+
			`<m:sup><m:r><m:t>6</m:t></m:r></m:sup></m:sSup></a14:m><a:r><a:t> litres.</a:t></a:r>`),
	} {
		require.Equal(t, "Moves 10^6 litres.", mustLoad(t, name, content).Text, name)
	}
}

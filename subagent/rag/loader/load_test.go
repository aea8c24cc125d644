package loader

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/unicode"

	"mneme/internal/testtier"
	"mneme/subagent/rag/chunk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// loadText loads a file and holds what is true of every outcome.
func loadText(t testing.TB, name, content string, l Limits) (chunk.Document, error) {
	t.Helper()
	d, err := Load(context.Background(), name, "", strings.NewReader(content), l)
	sound(t, name, d, err, l)
	return d, err
}

func sound(t testing.TB, name string, d chunk.Document, err error, l Limits) {
	t.Helper()
	if err != nil {
		require.NotEmpty(t, CodeOf(err), "%s: %v is no refusal", name, err)
		require.NotEmpty(t, err.Error())
		require.NotContains(t, err.Error(), "panic")
		return
	}
	l = l.orDefault()
	require.NotEmpty(t, strings.TrimSpace(d.Text))
	require.LessOrEqual(t, len(d.Text), l.Text)
	require.True(t, utf8.ValidString(d.Text+d.Title))
	require.NotContains(t, d.Text, "\x00")
	require.NotContains(t, d.Text, "\r")
	require.NotEmpty(t, d.Title)
	at := 0
	for _, s := range d.Sections {
		require.True(t, at <= s.Start && s.Start < s.End && s.End <= len(d.Text), "section %v of %d bytes behind %d", s,
			len(d.Text), at)
		require.True(t, s.Start <= s.Body && s.Body <= s.End)
		require.NotEmpty(t, s.Path)
		at = s.End
	}
	at = 0
	for _, w := range d.Blocks {
		require.True(t, at <= w.Start && w.Start < w.End && w.End <= len(d.Text))
		at = w.End
	}
	for _, p := range chunk.Split(d, chunk.Options{}) {
		require.Equal(t, d.Text[p.Start:p.End], p.Text)
	}
}

func mustLoad(t testing.TB, name, content string) chunk.Document {
	t.Helper()
	d, err := loadText(t, name, content, Limits{})
	require.NoError(t, err)
	return d
}

// refusal is the code and sentence of a file that must be refused.
func refusal(t testing.TB, name, content string, l Limits) (Code, string) {
	t.Helper()
	_, err := loadText(t, name, content, l)
	require.Error(t, err, name)
	return CodeOf(err), err.Error()
}

// outline writes sections as "A > B: text".
func outline(d chunk.Document) []string {
	var list []string
	for _, s := range d.Sections {
		list = append(list, strings.Join(s.Path, " > ")+": "+strings.TrimSpace(d.Text[s.Body:s.End]))
	}
	return list
}

func TestPlainText(t *testing.T) {
	d := mustLoad(t, "notes/travel_plan.txt", "\ufeffOne\u200b.\r\n\r\n\r\nTwo\x07 \u202etwo.\rThree\n")
	require.Equal(t, chunk.Document{Title: "travel plan", Source: "notes/travel_plan.txt",
		Text: "One.\n\nTwo two.\nThree"}, d)
	require.Equal(t, "Just text", mustLoad(t, "README", "Just text").Text)
}

func TestMarkdown(t *testing.T) {
	d := mustLoad(t, "guide.md", `---
title: "The guide"
author: Ann
tags:
  - a
---
Before *all*.

# Guide

Text with a [link](http://x.example/a?b=c), [another][ref], `+"`code *x*`"+`, a
line break &amp; an \*asterisk\*. <b>Bold</b> ![a picture](p.png)

## Lists ##

1. one
2. two
   - inner [ ] a
   - inner b

   more of two
- [x] done

Setext
------

`+"```go\nfunc main() {\n\n\t// # no heading\n}\n```"+`

| Name | Days |
|------|-----:|
| Ann  | 28   |

> Quoted.

<details><summary>More</summary>Inside html</details>

[ref]: http://y.example "title"
`)
	require.Equal(t, "The guide", d.Title)
	require.Equal(t, map[string]string{"author": "Ann"}, d.Metadata)
	require.Equal(t, []string{
		"Guide: Text with a link, another, code *x*, a line break & an *asterisk*. Bold a picture",
		"Guide > Lists: 1. one\n2. two\n  - inner [ ] a\n  - inner b\n  more of two\n\n- [x] done",
		"Guide > Setext: func main() {\n\n\t// # no heading\n}\n\n| Name | Days |\n| Ann | 28 " +
			"|\n\nQuoted.\n\nMore\n\nInside html",
	}, outline(d))
	require.True(t, strings.HasPrefix(d.Text, "Before all.\n\nGuide\n\nText"))
	require.Equal(t, "func main() {\n\n\t// # no heading\n}", d.Text[d.Blocks[0].Start:d.Blocks[0].End])
	require.Equal(t, "| Name | Days |\n| Ann | 28 |", d.Text[d.Blocks[1].Start:d.Blocks[1].End])
	require.NotContains(t, d.Text, "example")
	require.Equal(t, "Only heading", mustLoad(t, "x.md", "# Only heading").Title)
}

// A document that is parsed in pieces loses nothing at the seams.
func TestLongMarkdown(t *testing.T) {
	testtier.Slow(t)
	var source, want strings.Builder
	for range 400 {
		source.WriteString(
			"## Section\n\nWords of [a link][l] that fill a line of text, again and again and again.\n\n```\ncode\n\n# more " +
				"code\n```\n\n",
		)
		want.WriteString("Section\n\nWords of a link that fill a line of text, again and again and again.\n\ncode\n\n# " +
			"more code\n\n")
	}
	d := mustLoad(t, "long.md", source.String()+"[l]: http://x.example\n")
	require.Equal(t, strings.TrimSpace(want.String()), d.Text)
	require.Len(t, d.Sections, 400)
	require.Len(t, d.Blocks, 400)

	line := strings.Repeat("слово ", 100_000)
	require.Equal(t, strings.Join(strings.Fields(line), ""),
		strings.Join(strings.Fields(mustLoad(t, "line.md", line).Text), ""))
}

func TestHTML(t *testing.T) {
	d := mustLoad(t, "page.html", `<!DOCTYPE html><html><head><title>The  page</title><style>p{color:red}</style></head>
<body><nav>Menu</nav><script>alert("evil")</script><h1>Guide</h1><p>Hello &lt;b&gt; <b>world</b> &amp; <a href="http://x.example">link</a>.
<h2>Table</h2><table><tr><th>Name<th>Days</tr><tr><td>Ann<td>28</table>
<pre><code>x := 1
y := 2</code></pre><ul><li>one<li>two</ul><template>hidden</template><noscript>no</noscript></body></html>`)
	require.Equal(t, "The page", d.Title)
	require.Equal(t, []string{
		"Guide: Hello <b> world & link.",
		"Guide > Table: | Name | Days |\n| Ann | 28 |\n\nx := 1\ny := 2\n\n- one\n- two",
	}, outline(d))
	require.Len(t, d.Blocks, 2)

	for _, deep := range []string{
		strings.Repeat("<div>", 100_000), strings.Repeat("<b><div>", 300), strings.Repeat("<ul><li>", 200),
		strings.Repeat("<blockquote>", 99),
		strings.Repeat("<table><tr><td>", 5000), strings.Repeat("<svg><g>", 50_000) + "</svg>",
	} {
		d = mustLoad(t, "deep.html", "<title>Deep</title><script>evil()</script>"+deep+"<h2>Found</h2><p>the text")
		require.Contains(t, d.Text, "the text")
		require.NotContains(t, d.Text, "evil")
		require.Equal(t, "Deep", d.Title)
	}
}

func encoded(t *testing.T, e encoding.Encoding, text string) string {
	t.Helper()
	out, err := e.NewEncoder().String(text)
	require.NoError(t, err)
	return out
}

func TestEncodings(t *testing.T) {
	russian := "Отпуск оформляется за две недели до начала, ёлки — в декабре. См. приложение №5."
	french := "L’été, les élèves préfèrent le café à la crème – naturellement."
	for name, content := range map[string]string{
		"utf8":     russian,
		"bom":      "\ufeff" + russian,
		"utf16le":  encoded(t, unicode.UTF16(unicode.LittleEndian, unicode.UseBOM), russian),
		"utf16be":  encoded(t, unicode.UTF16(unicode.BigEndian, unicode.UseBOM), russian),
		"1251":     encoded(t, charmap.Windows1251, russian),
		"koi8":     encoded(t, charmap.KOI8R, strings.NewReplacer("—", "-", "№", "N").Replace(russian)),
		"cut utf8": russian[:len(russian)-1] + "\xd0",
	} {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, mustLoad(t, "a.txt", content).Text, "Отпуск оформляется за две недели до начала, ёлки")
		})
	}
	require.Equal(t, french, mustLoad(t, "a.txt", encoded(t, charmap.Windows1252, french)).Text)

	thai := encoded(t, charmap.Windows874, strings.Repeat("เรือจากเกาะมาทุกวันพุธ ", 5))
	code, sentence := refusal(t, "a.txt", thai, Limits{})
	require.Equal(t, Encoding, code)
	require.Contains(t, sentence, "save it as UTF-8")

	japanesePage := `<html><head><meta charset=iso-2022-jp></head><body>` + encoded(t, japanese.ISO2022JP, "<p>船が来ます</p>")
	require.Equal(t, "船が来ます", mustLoad(t, "a.html", japanesePage).Text)

	// one letter: nothing to guess from
	page := `<html><head><meta charset="windows-1251"><title>Т</title></head><body><p>` + "\xcf" + `</p></body></html>`
	require.Contains(t, mustLoad(t, "a.html", page).Text, "П")
	d, err := Load(context.Background(), "a", "text/html; charset=koi8-r", strings.NewReader("<p>\xf0</p>"), Limits{})
	require.NoError(t, err)
	require.Equal(t, "П", d.Text)
	d, err = Load(context.Background(), "a.txt", "text/plain; charset=utf-16le", strings.NewReader("t\x00e\x00x\x00t\x00"),
		Limits{})
	require.NoError(t, err)
	require.Equal(t, "text", d.Text)
	xml := `<?xml version="1.0" encoding="windows-1251"?><html><body><p>` + "\xcf" + `</p></body></html>`
	require.Contains(t, mustLoad(t, "a.xhtml", xml).Text, "П")
}

func TestBinaryIsRefused(t *testing.T) {
	testtier.Slow(t)
	random := make([]byte, 10_000)
	state := uint32(7)
	for i := range random {
		state = state*1664525 + 1013904223
		random[i] = byte(state >> 24)
	}
	for _, name := range []string{"a.txt", "a.md", "a.html", "a.csv", "a.json", "a"} {
		code, sentence := refusal(t, name, string(random), Limits{})
		require.Equal(t, Encoding, code)
		require.Contains(t, sentence, "text")
		code, _ = refusal(t, name, "apple \x00\x01\x00 pie", Limits{})
		require.Equal(t, Encoding, code, name)
	}
	log := strings.Repeat("A line of a log.\n", 500) + "\x00\x00" + strings.Repeat("A line of a log.\n", 500)
	require.NotContains(t, mustLoad(t, "a.log", log).Text, "\x00")
	code, _ := refusal(t, "a.txt", "\xff\xfea", Limits{})
	require.Equal(t, Encoding, code)
}

func TestTypeByContent(t *testing.T) {
	pdf := makePDF(page("Hello from a PDF"))
	for _, name := range []string{"a.txt", "a.docx", "a", "a.html"} {
		require.Contains(t, mustLoad(t, name, pdf).Text, "Hello from a PDF")
	}
	word := makeWord(t, wordParagraph("Hello from Word"))
	for _, name := range []string{"a.txt", "a.docx", "a.pdf", "a"} {
		require.Equal(t, "The book", mustLoad(t, name, makeBook(t, nil)).Title)
		require.Equal(t, "Welcome all", mustLoad(t, name, makeSlides(t)).Title)
		require.Contains(t, mustLoad(t, name, makeSheets(t)).Text, "Tea: Green")
		require.Equal(t, "text", mustLoad(t, name, `{\rtf1 text}`).Text)
	}
	require.Contains(t, mustLoad(t, "a.pdf", word).Text, "Hello from Word")
	for _, name := range []string{"a.pdf", "a.txt", "a.docx", "a", "a.unknown"} {
		require.Equal(t, "Page", mustLoad(t, name, "<!DOCTYPE html><title>Page</title><p>text</p>").Title)
	}
	require.Equal(t, "a.b: 1", mustLoad(t, "a", `{"a":{"b":1}}`).Text)
	require.Equal(t, "{no json", mustLoad(t, "a", `{no json`).Text)
	d, err := Load(context.Background(), "upload", "text/markdown", strings.NewReader("# T\n\nx"), Limits{})
	require.NoError(t, err)
	require.Equal(t, "T", d.Title)
	d, err = Load(context.Background(), "a.md", "application/x-www-form-urlencoded", strings.NewReader("# T\n\nx"),
		Limits{})
	require.NoError(t, err)
	require.Equal(t, "T", d.Title)

	for content, want := range map[string]Code{
		"\x89PNG\r\n\x1a\n":                    Unsupported,
		"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1 old": Unsupported,
		"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + string(utf16LE("EncryptedPackage")): Encrypted,
		"PK\x03\x04 broken": Damaged,
		"":                  Empty,
		" \n\t":             Empty,
		makeZip(t, map[string]string{"a/b.xml": ""}):  Unsupported,
		makeZip(t, map[string]string{"xl/a.xml": ""}): Damaged,
	} {
		code, sentence := refusal(t, "a.txt", content, Limits{})
		require.Equal(t, want, code, sentence)
	}
	code, sentence := refusal(t, "a.pdf", "no PDF at all", Limits{})
	require.Equal(t, Damaged, code)
	require.Equal(t, "the file is damaged: it is named as a PDF and is none", sentence)
}

func TestLimits(t *testing.T) {
	testtier.Slow(t)
	code, sentence := refusal(t, "a.txt", strings.Repeat("x", 2049), Limits{Bytes: 2048})
	require.Equal(t, TooLarge, code)
	require.Equal(t, "the file is larger than 2 KB", sentence)
	code, sentence = refusal(t, "a.txt", strings.Repeat("x", 2049), Limits{Text: 2048})
	require.Equal(t, TooLarge, code)
	require.Equal(t, "the file holds more than 2 KB of text", sentence)
	code, _ = refusal(t, "a.txt", strings.Repeat("x ", 60<<20), Limits{})
	require.Equal(t, TooLarge, code)

	_, err := Load(context.Background(), "a.txt", "", iotest.OneByteReader(endless{}), Limits{Time: time.Millisecond})
	require.Equal(t, Timeout, CodeOf(err))
	require.ErrorContains(t, err, "takes longer than 1ms")
}

// One sparse file of many gigabytes: nothing of it is kept.
func TestHugeFile(t *testing.T) {
	testtier.Slow(t)
	path := filepath.Join(t.TempDir(), "huge.txt")
	require.NoError(t, os.WriteFile(path, []byte("start"), 0o644))
	require.NoError(t, os.Truncate(path, 40<<30))
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	_, err = Load(context.Background(), path, "", f, Limits{})
	require.Equal(t, TooLarge, CodeOf(err))
}

func TestTheCallersEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, name := range []string{"a.txt", "a.md", "a.html", "a.pdf", "a.docx", "a.csv", "a.json", "a.xlsx", "a.pptx",
		"a.odt", "a.epub", "a.rtf", "a.eml"} {
		_, err := Load(ctx, name, "", strings.NewReader("x"), Limits{})
		require.ErrorIs(t, err, context.Canceled)
		require.Empty(t, CodeOf(err))
	}
	broken := errors.New("network down")
	_, err := Load(context.Background(), "a.txt", "", io.MultiReader(strings.NewReader("x"), iotest.ErrReader(broken)),
		Limits{})
	require.ErrorIs(t, err, broken)
	require.Empty(t, CodeOf(err))
}

// A context that ends in the middle of the work ends it, in every format.
func TestEndInTheMiddle(t *testing.T) {
	text := strings.Repeat("some words of text, ", 50_000)
	rows := strings.Repeat("a,b\n", 250_000)
	for name, content := range map[string]string{
		"a.md": strings.Repeat("# h\n\n[a](b *c*\n\n", 60_000), "a.html": "<p>" + strings.Repeat("<p>"+text[:100], 10_000),
		"a.csv": rows, "a.json": `["` + strings.Repeat(`a","`, 200_000) + `"]`,
		"a.pdf":  makePDF(strings.Repeat(page("some text of a page"), 1000)),
		"a.docx": makeWord(t, strings.Repeat(wordParagraph("text"), 20_000)),
		"a.xlsx": makeWorkbook(t, strings.Repeat("<row><c><v>1</v></c></row>", 20_000), "", ""),
		"a.odt":  makeOpen(t, "", strings.Repeat("<text:p>text</text:p>", 20_000)),
		"a.rtf":  `{\rtf1 ` + strings.Repeat(`text\par `, 20_000) + "}",
		"a.eml":  "Subject: x\nContent-Type: text/html\n\n<p>" + strings.Repeat("<p>"+text[:100], 10_000),
		"a.epub": makeBook(t, map[string]string{"OEBPS/text/two.xhtml": "<p>" + strings.Repeat("<p>"+text[:100], 10_000)}),
		"a.pptx": makeZip(t, map[string]string{"ppt/presentation.xml": strings.Repeat(`<p:sldId r:id="x"/>`, 20_000)}),
	} {
		t.Run(name, func(t *testing.T) {
			ctx := &fading{Context: context.Background(), left: 20}
			_, err := Loader{Limits: Limits{}.orDefault()}.load(ctx, file{name: name, data: []byte(content)})
			require.ErrorIs(t, err, context.Canceled)
		})
	}
}

// fading is a context that is asked a number of times before it ends.
type fading struct {
	context.Context
	left int
}

func (f *fading) Err() error {
	if f.left--; f.left < 0 {
		return context.Canceled
	}
	return nil
}

func TestCSV(t *testing.T) {
	require.Equal(t, "name: Ann \"A\" O'Neil\nnote: line one\nline two\n\nname: Bob, jr.\ncolumn 3: extra",
		mustLoad(t, "a.csv",
			"name,note\r\n\"Ann \"\"A\"\" O'Neil\",\"line one\r\n\r\nline two\"\r\n\"Bob, jr.\",,extra\r\n\r\n").Text)
	require.Equal(t, "Имя: Анна\nДней: 28,5", mustLoad(t, "a.csv", "\ufeffИмя;Дней\nАнна;28,5\n").Text)
	require.Equal(t, "a: 1\nb: 2", mustLoad(t, "a.csv", "a\tb\n1\t2\n").Text)
	require.Equal(t, "a: 1\nb: 2;3", mustLoad(t, "a.tsv", "a\tb\n1\t2;3\n").Text)
	require.Equal(t, "a: x,y\nb: 2", mustLoad(t, "a.csv", "sep=;\na;b\nx,y;2\n").Text)
	require.Equal(t, "column 1: 1\ncolumn 2: 2\n\ncolumn 1: 3\ncolumn 2: 4", mustLoad(t, "a.csv", "1,2\n3,4").Text)
	require.Equal(t, "word: one\n\nword: two", mustLoad(t, "a.csv", "word\none\ntwo\n").Text)
	mustLoad(t, "a.csv", "a,b\n\"never closed,1\n2,3")
	mustLoad(t, "a.csv", "a,b\nx\"y\"z,1")
	code, sentence := refusal(t, "a.csv", "a,b\n"+strings.Repeat("1,2\n", 11), Limits{Rows: 10})
	require.Equal(t, TooLarge, code)
	require.Equal(t, "the file has more than 10 rows", sentence)
	require.Equal(t, "a b", mustLoad(t, "only-header.csv", "a,b\n").Text)
	require.Equal(t, "Sales of 2026\n\nin euros\n\nTea: Green\n2024: 3\n2025: 4\n\nTea: Black\n2024: 5\n2025: 6",
		mustLoad(t, "a.csv", "Sales of 2026;;\nin euros;;\n\nTea;2024;2025\nGreen;3;4\nBlack;5;6\n").Text)
	require.Equal(t, "Report of May\n\na: 1\nb: x, y\n\na: 2\nb: z",
		mustLoad(t, "a.csv", "Report of May\n\na;b\n1;x, y\n2;z\n").Text)
	require.Equal(t,
		"column 1: Lincoln\ncolumn 2: 1861\ncolumn 3: 1865\n\ncolumn 1: Grant\ncolumn 2: 1869\ncolumn 3: 1877",
		mustLoad(t, "a.csv", "Lincoln,1861,1865\nGrant,1869,1877\n").Text)
	require.Equal(t, "column 1: Name:\ncolumn 2: Ann\n\ncolumn 1: Place:\ncolumn 2: Riga",
		mustLoad(t, "a.csv", "Name:,Ann\nPlace:,Riga\n").Text)
}

func TestJSON(t *testing.T) {
	d := mustLoad(t, "a.json",
		`{"id":"7","title":"T","text":"Some\r\ntext.\n\n\nMore\u0000.","url":"http://x.example","year":2024,"metadata":{"lang":"en","deep":{"x":1}},"tags":["a"]}`)
	require.Equal(t, chunk.Document{Title: "T", Source: "http://x.example", Text: "Some\ntext.\n\nMore.",
		Metadata: map[string]string{"year": "2024", "lang": "en"}}, d)

	require.Equal(t, "a.b[0].c: 1\na.b[1]: two\na.b[2][0]: true\nd: x",
		mustLoad(t, "a.json", `{"a":{"b":[{"c":1},"two",[true],null,""]},"d":"x"}`).Text)
	require.Equal(t, "[0].a: 1\n\n[1]: x", mustLoad(t, "a.json", `[{"a":1},"x"]`).Text)

	many := `[{"title":"One","text":"first"},{"body":"second"},{"x":"third"}]`
	d = mustLoad(t, "many.json", many)
	require.Equal(t, "many", d.Title)
	require.Equal(t, []string{"One: first", "record 2: second\n\n[2].x: third"}, outline(d))
	lines := strings.NewReplacer("},{", "}\n{", "[", "", "]", "").Replace(many)
	require.Equal(t, []string{"One: first", "record 2: second\n\nx: third"}, outline(mustLoad(t, "many.json", lines)))

	for content, want := range map[string]Code{
		strings.Repeat("[", 100_000):                                          TooLarge,
		strings.Repeat(`{"a":`, 100_000) + "1" + strings.Repeat("}", 100_000): TooLarge,
		"[" + strings.Repeat("[", 600) + "1" + strings.Repeat("]", 600) + "]": TooLarge,
		`{"a":`:   Damaged,
		`{"a" 1}`: Damaged,
		`[1,2`:    Damaged,
		`{}`:      Empty,
		`[]`:      Empty,
		`null`:    Empty,
	} {
		code, sentence := refusal(t, "a.json", content, Limits{})
		require.Equal(t, want, code, "%s for %.50s", sentence, content)
	}
	code, _ := refusal(t, "a.json", `["`+strings.Repeat(`a","`, 100)+`"]`, Limits{Rows: 50})
	require.Equal(t, TooLarge, code)
}

// got is what Documents gave.
type got struct {
	ID, Title, Text, Error string
	Line                   int
}

func documents(t *testing.T, name, content string, l Limits) []got {
	t.Helper()
	list := []got{}
	for item, err := range Documents(context.Background(), name, "", strings.NewReader(content), l) {
		sound(t, name, item.Document, err, l)
		if err != nil {
			refused, _ := errors.AsType[*Error](err)
			list = append(list, got{Error: err.Error(), Line: refused.Line})
			continue
		}
		list = append(list, got{ID: item.ID, Title: item.Document.Title, Text: item.Document.Text})
	}
	return list
}

func TestDocuments(t *testing.T) {
	require.Equal(t, []got{
		{ID: "d1", Title: "One", Text: "first"},
		{ID: "2", Title: "c 2", Text: "second"},
		{Error: "line 3: the file is damaged: it cannot be read as JSON", Line: 3},
		{ID: "5", Title: "c 5", Text: "x: 1"},
		{Error: "line 6: the document holds no text", Line: 6},
		{ID: "9", Title: "Пять", Text: "пятый"},
	},
		documents(t, "c.jsonl",
			"\ufeff{\"_id\":\"d1\",\"title\":\"One\",\"text\":\"first\"}\n{\"text\":\"second\"}\r\n{broken\n\n{\"x\":1}\n{\"text\":\" \"}\n"+
				encoded(t, charmap.Windows1251, `{"id":9,"title":"Пять","text":"пятый"}`), Limits{}))

	require.Equal(t, []got{{ID: "a", Title: "x a", Text: "one"}, {Error: "document 2: the document holds no text"},
		{ID: "3", Title: "x 3", Text: "[2]: 3"}},
		documents(t, "x.json", `[{"id":"a","text":"one"},{},3]`, Limits{}))
	require.Equal(t, []got{{Title: "x a", Text: "one"}}, documents(t, "x.json", `{"id":"a","text":"one"}`, Limits{}))
	require.Equal(t, []got{{Title: "H", Text: "H\n\ntext"}}, documents(t, "x.md", "# H\n\ntext", Limits{}))
	require.Equal(t, []got{{Error: "the file is empty"}}, documents(t, "x.md", "", Limits{}))
	require.Equal(t, []got{{Error: "the file is empty"}}, documents(t, "x.jsonl", "\n\n", Limits{}))
	require.Equal(t, []got{{Error: "the file holds no text"}}, documents(t, "x.json", "[]", Limits{}))
	require.Equal(t, []got{{ID: "1", Title: "x 1", Text: "a"}, {Error: "the file holds more than 1 documents"}},
		documents(t, "x.jsonl", `{"text":"a"}`+"\n"+`{"text":"b"}`, Limits{Rows: 1}))
	require.Equal(t,
		[]got{{ID: "1", Title: "x 1", Text: "a"}, {Error: "document 2: the file holds more than 4 bytes of text"}},
		documents(t, "x.json", `[{"text":"a"},{"text":"bbbbb"}]`, Limits{Text: 4}))
	require.Equal(t,
		[]got{{ID: "1", Title: "x 1", Text: "a"}, {Error: "the file is damaged: it cannot be read as JSON behind byte 15"}},
		documents(t, "x.json", `[{"text":"a"},{`, Limits{}))

	for item, err := range Documents(context.Background(), "x.json", "", strings.NewReader(`[{"text":"a"},{"text":"b"}]`),
		Limits{}) {
		require.NoError(t, err)
		require.Equal(t, "a", item.Document.Text)
		break
	}
}

// endless is a reader of one letter.
type endless struct{}

var letters = bytes.Repeat([]byte("x"), 1<<16)

func (endless) Read(p []byte) (int, error) { return copy(p, letters), nil }

func TestEndOfDocuments(t *testing.T) {
	for _, name := range []string{"a.jsonl", "a.json"} {
		ctx, cancel := context.WithCancel(context.Background())
		content, err := json.Marshal(map[string]string{"text": "a"})
		require.NoError(t, err)
		source := "[" + string(content) + "," + string(content) + "]"
		if name == "a.jsonl" {
			source = strings.Repeat(string(content)+"\n", 2)
		}
		defer cancel()
		var last error
		n := 0
		for _, err := range Documents(ctx, name, "", strings.NewReader(source), Limits{}) {
			last = err
			n++
			cancel()
		}
		require.ErrorIs(t, last, context.Canceled)
		require.Equal(t, 2, n)
	}
	broken := errors.New("network down")
	for _, err := range Documents(context.Background(), "a.jsonl", "", iotest.ErrReader(broken), Limits{}) {
		require.ErrorIs(t, err, broken)
	}
}

package chunk

import (
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// check holds what is true of the passages of every document.
func check(t require.TestingT, d Document, o Options, passages []Passage) {
	covered := make([]bool, len(d.Text))
	limit := o.sane()
	for i, p := range passages {
		require.Equal(t, i, p.Ordinal)
		require.True(t, 0 <= p.Start && p.Start < p.End && p.End <= len(d.Text), "span %v of %d bytes", p.Span, len(d.Text))
		require.Equal(t, d.Text[p.Start:p.End], p.Text)
		require.Equal(t, strings.TrimSpace(p.Text), p.Text)
		require.LessOrEqual(t, utf8.RuneCountInString(p.Text), limit.Max)
		if utf8.ValidString(d.Text) {
			require.True(t, utf8.ValidString(p.Text), "%q is cut inside a character", p.Text)
		}
		for k := p.Start; k < p.End; k++ {
			covered[k] = true
		}
		if i == 0 {
			continue
		}
		before := passages[i-1]
		require.Greater(t, p.Start, before.Start)
		require.Greater(t, p.End, before.End)
		if p.Start < before.End {
			repeated := utf8.RuneCountInString(d.Text[p.Start:before.End])
			require.LessOrEqual(t, repeated, limit.Overlap)
			require.LessOrEqual(t, repeated*100, maxOverlap*utf8.RuneCountInString(p.Text))
		}
	}
	for i, r := range d.Text {
		if !covered[i] && !unicode.IsSpace(r) {
			require.Fail(t, "text is lost", "at %d of %q", i, d.Text)
		}
	}
}

// document draws any text, sections and blocks, also senseless ones.
func document(t *rapid.T) Document {
	piece := rapid.OneOf(
		rapid.SampledFrom([]string{"слово ", "word ", "Конец. ", "End. ", "т.е. ", "\n", "\n\n", " ", "# Head\n", "- item\n",
			"日本語。", "e\u0301", "👩‍👩‍👧", "\t", "2024 г. ", "a.b"}),
		rapid.StringN(0, 12, -1),
	)
	text := strings.Join(rapid.SliceOfN(piece, 0, 400).Draw(t, "text"), "")
	d := Document{Text: text}
	offset := rapid.IntRange(0, len(text))
	names := rapid.SliceOfN(rapid.SampledFrom([]string{"A", "B", "C"}), 0, 3)
	for range rapid.IntRange(0, 6).Draw(t, "sections") {
		a, b := offset.Draw(t, "a"), offset.Draw(t, "b")
		d.Sections = append(d.Sections, Section{Span: Span{a, b}, Path: names.Draw(t, "path"), Body: offset.Draw(t, "body")})
	}
	at := 0
	for range rapid.IntRange(0, 4).Draw(t, "blocks") {
		a := rapid.IntRange(at, len(text)).Draw(t, "from")
		b := rapid.IntRange(a, len(text)).Draw(t, "to")
		d.Blocks, at = append(d.Blocks, Span{a, b}), b
	}
	return d
}

func TestSplitOfAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := document(t)
		o := Options{
			Target:  rapid.IntRange(-1, 300).Draw(t, "target"),
			Max:     rapid.IntRange(-1, 300).Draw(t, "max"),
			Overlap: rapid.IntRange(-1, 100).Draw(t, "overlap"),
		}
		passages := Split(d, o)
		check(t, d, o, passages)
		require.Equal(t, passages, Split(d, o))
	})
}

func FuzzSplit(f *testing.F) {
	f.Add("A sentence. Another one.\n\nA paragraph.", 20, 3)
	f.Add(strings.Repeat("ж", 500), 30, 4)
	f.Add("\xff\xfe\x80 broken \xd0", 20, 1)
	f.Fuzz(func(t *testing.T, text string, limit, at int) {
		at = max(0, min(at, len(text)))
		d := Document{Text: text, Sections: []Section{{Span: Span{at, len(text)}, Path: []string{"S"}, Body: at}}}
		o := Options{Max: min(limit, 1<<20)}
		check(t, d, o, Split(d, o))
	})
}

func TestNothing(t *testing.T) {
	require.Empty(t, Split(Document{}, Options{}))
	require.Empty(t, Split(Document{Text: " \n\t\u00a0"}, Options{}))
	require.Empty(t, Split(Document{Text: strings.Repeat(" \n", 10_000)}, Options{}))
}

// sectioned is a document of headings and the text under each.
func sectioned(list ...[2]string) Document {
	var d Document
	for _, s := range list {
		path := strings.Split(s[0], " > ")
		start := len(d.Text)
		d.Text += path[len(path)-1] + "\n\n"
		body := len(d.Text)
		if s[1] != "" {
			d.Text += s[1] + "\n\n"
		}
		d.Sections = append(d.Sections, Section{Span: Span{start, len(d.Text)}, Path: path, Body: body})
	}
	return d
}

func TestSmallDocumentIsOnePassage(t *testing.T) {
	d := sectioned([2]string{"Guide", "Welcome."}, [2]string{"Guide > Leave", "28 days."}, [2]string{
		"Guide > Travel", "By train.",
	})
	passages := Split(d, Options{})
	require.Len(t, passages, 1)
	require.Equal(t, "Guide", passages[0].Section)
	require.Equal(t, "Guide\n\nWelcome.\n\nLeave\n\n28 days.\n\nTravel\n\nBy train.", passages[0].Text)

	whole := Document{Text: strings.Repeat("ж", 2000)}
	require.Len(t, Split(whole, Options{}), 1)
	whole.Text += "ж"
	require.Len(t, Split(whole, Options{}), 2)
}

func TestPassagesFollowHeadings(t *testing.T) {
	long := strings.TrimSpace(strings.Repeat("Some words of a sentence. ", 40)) // 1,039 characters
	d := sectioned(
		[2]string{"Guide", ""},
		[2]string{"Guide > Leave", long},
		[2]string{"Guide > Travel", long},
		[2]string{"Guide > Travel > Trains", "Short."},
		[2]string{"Guide > Travel > Planes", "Short too."},
		[2]string{"Appendix", "Alone."},
	)
	d.Text = "Before all.\n\n" + d.Text
	for i := range d.Sections {
		d.Sections[i].Start += 13
		d.Sections[i].End += 13
		d.Sections[i].Body += 13
	}
	var got []string
	passages := Split(d, Options{})
	check(t, d, Options{}, passages)
	for _, p := range passages {
		got = append(got, p.Section+": "+p.Text)
	}
	require.Equal(t, []string{
		": Before all.",
		"Guide > Leave: Guide\n\nLeave\n\n" + long,
		"Guide > Travel: Travel\n\n" + long + "\n\nTrains\n\nShort.\n\nPlanes\n\nShort too.",
		"Appendix: Appendix\n\nAlone.",
	}, got)
}

// A heading without text does not pull the next chapter under it.
func TestEmptyHeadingBeforeAnother(t *testing.T) {
	long := strings.TrimSpace(strings.Repeat("Some words of a sentence. ", 90))
	d := sectioned([2]string{"A", long}, [2]string{"B > Empty", ""}, [2]string{"C", "Text of C."})
	passages := Split(d, Options{})
	last := passages[len(passages)-1]
	require.Equal(t, "", last.Section)
	require.Equal(t, "Empty\n\nC\n\nText of C.", last.Text)
}

func TestLongSectionIsCutAtItsBestPlaces(t *testing.T) {
	paragraphs := make([]string, 12)
	for i := range paragraphs {
		paragraphs[i] = fmt.Sprintf("Абзац %d. %s", i, strings.TrimSpace(strings.Repeat("Здесь говорится о важном. ", 15)))
	}
	d := sectioned([2]string{"Глава", strings.Join(paragraphs, "\n\n")})
	passages := Split(d, Options{})
	check(t, d, Options{}, passages)
	require.Greater(t, len(passages), 2)
	for i, p := range passages {
		require.Equal(t, "Глава", p.Section)
		require.True(t, strings.HasSuffix(p.Text, "важном."), "%q", p.Text)
		require.Greater(t, utf8.RuneCountInString(p.Text), 900)
		if i > 0 {
			require.True(t, strings.HasPrefix(p.Text, "Здесь") || strings.HasPrefix(p.Text, "Абзац"),
				"starts with a sentence: %q", p.Text)
			require.Less(t, p.Start, passages[i-1].End, "repeats the end of the one before")
		}
	}
}

func TestSentences(t *testing.T) {
	for text, want := range map[string][]string{
		"One. Two! Three? «Four.» Five… Six": {"One.", "Two!", "Three?", "«Four.»", "Five…",
			"Six"},
		"See Dr. Smith, e.g. on page 3.5 of vol. 2. Then go.": {"See Dr. Smith, e.g. on page 3.5 of vol. 2.",
			"Then go."},
		"А. С. Пушкин родился в 1799 г. в Москве, т.е. давно. Он поэт.": {
			"А. С. Пушкин родился в 1799 г. в Москве, т.е. давно.", "Он поэт.",
		},
		"Он сказал: «Иду!» и ушёл. Всё.": {"Он сказал: «Иду!» и ушёл.", "Всё."},
		"列です。次の文。":                       {"列です。", "次の文。"},
		"Intro:\n- one\n- two\n2. three": {"Intro:", "- one", "- two", "2. three"},
	} {
		s := splitter{doc: Document{Text: text}}
		var got []string
		from := 0
		for i := range text {
			if s.rank(i) >= sentence {
				got, from = append(got, strings.TrimSpace(text[from:i])), i
			}
		}
		require.Equal(t, want, append(got, text[from:]))
	}
}

func TestCodeAndTablesStayWhole(t *testing.T) {
	before := strings.Repeat("Some words of a sentence. ", 50) // 1,300 characters
	block := strings.Repeat("x := compute(y) // line\n", 60)   // 1,440
	d := Document{Text: before + "\n\n" + block + "\n\n" + before}
	at := len(before) + 2
	d.Blocks = []Span{{at, at + len(block)}}
	passages := Split(d, Options{})
	check(t, d, Options{}, passages)
	holders := 0
	for _, p := range passages {
		if strings.Contains(p.Text, strings.TrimSpace(block)) {
			holders++
		} else {
			require.NotContains(t, p.Text, "compute")
		}
	}
	require.Equal(t, 1, holders)

	huge := Document{Text: strings.Repeat("| a cell. Another | second |\n", 200)}
	huge.Blocks = []Span{{0, len(huge.Text)}}
	passages = Split(huge, Options{})
	check(t, huge, Options{}, passages)
	for _, p := range passages {
		require.True(t, strings.HasPrefix(p.Text, "| a cell."), "cut between rows: %q", p.Text)
		require.True(t, strings.HasSuffix(p.Text, "|"))
	}
}

func TestTextWithoutSpaces(t *testing.T) {
	d := Document{Text: strings.Repeat("ж", 5000)}
	passages := Split(d, Options{})
	check(t, d, Options{}, passages)
	require.Len(t, passages, 4)

	marks := Document{Text: strings.Repeat("e\u0301", 3000)}
	for _, p := range Split(marks, Options{}) {
		require.True(t, strings.HasPrefix(p.Text, "e"), "a mark stays with its letter")
	}
	check(t, marks, Options{}, Split(marks, Options{}))
	only := Document{Text: strings.Repeat("\u0301", 5000)}
	check(t, only, Options{}, Split(only, Options{}))
}

func TestTitleOf(t *testing.T) {
	for name, want := range map[string]string{
		"a/b/travel_policy-2024.md": "travel policy 2024",
		`C:\docs\план работ.docx`:   "план работ",
		".config":                   ".config",
		"README":                    "README",
	} {
		require.Equal(t, want, TitleOf(name))
	}
}

func BenchmarkSplit(b *testing.B) {
	d := Document{Text: strings.Repeat("Some words of a sentence. Ещё немного слов о важном.\n\n", 20_000)}
	b.SetBytes(int64(len(d.Text)))
	for b.Loop() {
		Split(d, Options{})
	}
}

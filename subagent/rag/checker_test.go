package rag

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	render "github.com/yuin/goldmark/renderer/html"
	"golang.org/x/net/html"

	"mneme/internal/ragtest"
	"mneme/memory/envelope"
	"mneme/memory/event"
)

// pieces checks a text that comes in these pieces.
func pieces(s *scope, parts ...string) (string, *checker) {
	c := newChecker(s)
	var out strings.Builder
	for _, p := range parts {
		out.WriteString(c.write(p))
	}
	out.WriteString(c.close(true))
	return out.String(), c
}

// hostile is what answers are tried with: they had one passage, and the user named
// an address.
func hostile() *scope {
	s := numbered(Passage{ID: "ferry#0", DocID: "ferry", Title: "Ferry", Source: ragtest.Source, Text: ragtest.Passage})
	s.supports = []*support{{text: ragtest.Question, links: true}}
	return s
}

// What an honest answer holds stays as it is, to the byte.
func TestHonestAnswersStayAsTheyAre(t *testing.T) {
	t.Parallel()
	for _, text := range ragtest.Honest {
		got, c := pieces(hostile(), text)
		require.Equal(t, text, got)
		require.Empty(t, c.flags, text)
	}
	none := &scope{}
	for _, text := range append(ragtest.Unchecked, ragtest.Honest...) {
		got, _ := pieces(none, text)
		require.Equal(t, text, got)
		for at := range text {
			got, _ := pieces(none, text[:at], text[at:])
			require.Equal(t, text, got, "cut at %d", at)
		}
	}
}

// Without passages text flows: nothing but what may be an image waits.
func TestWithoutPassagesTextFlows(t *testing.T) {
	t.Parallel()
	c := newChecker(&scope{})
	for _, piece := range []string{"Hel", "lo", " world. ", "It is", " 5 ", "[1] and", "\nmore ", "- items", " of a",
		" list"} {
		require.Equal(t, piece, c.write(piece))
	}
	require.Empty(t, c.write("!"))
	require.Equal(t, "! [a](https://a.example/", c.write("[a](https://a.example/"))
	require.Empty(t, c.write("<img "))
	require.Equal(t, "< img src=x> so", c.write("src=x> so"))
	long := " <a " + strings.Repeat("and so on ", maxHeld/10+1)
	require.Equal(t, " < a "+long[4:], c.write(long), "what waits is bounded")
	require.Equal(t, " it", c.write(" it"))
}

// What a program that shows an answer would load is text, and nothing of it is lost. Code between fences is as it was,
// where it is clear to every reader where it ends.
func TestWhatWouldBeLoadedIsText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"Great![1] ![a](b)![c][d] !![e]":                       "Great! [1] ! [a](b)! [c][d] !! [e]",
		"`vec![1, 2]` and `<img src=\"a.png\">`":               "`vec! [1, 2]` and `< img src=\"a.png\">`",
		"好！[a](b) ‼[a](b) ⁈[a](b) !\u200b[a](b)":               "好！ [a](b) ‼ [a](b) ⁈ [a](b) ! \u200b[a](b)",
		"&#33;[a](b) \\u0021[a](b) %21&#x5B;a](b)":             "&#33; [a](b) \\u0021 [a](b) %21 &#x5B;a](b)",
		"!" + strings.Repeat("\u200b", maxHeld) + "[a](b) So!": "! " + strings.Repeat("\u200b", maxHeld) + "[a](b) So!",
		"<IMG\nSRC = x>":   "< IMG\nSRC = x>",
		"<img &gt; src=x>": "< img &gt; src=x>",
		"<k, style=x>":     "< k, style=x>",
		"<i<img src=x>":    "< i< img src=x>",
		"&lt;img src=x> &ltimg src=x> ＜img src=x>": "&lt; img src=x> & ltimg src=x> ＜ img src=x>",
		"<i\u00admg src=x>":                        "< i\u00admg src=x>",
		"<script>x</script><svg:style>y<style\rz>": "< script>x</script>< svg:style>y< style\rz>",
		"<p>a</p>\n\n```\n<img src=x>\n```\n":      "<p>a</p>\n\n```\n< img src=x>\n```\n",
		"$$\n```\n$$\n![a](b)\n":                   "$$\n```\n$$\n! [a](b)\n",
		"- ```\n  a\n```\n![a](b)\n":               "- ```\n  a\n```\n! [a](b)\n",
		"```\n a ```\n![a](b)\n":                   "```\n a ```\n! [a](b)\n",
		"```\n```\n![a](b)\n":                      "```\n```\n! [a](b)\n",
		"a\r```\n![a](b)\n":                        "a\r```\n! [a](b)\n",
		"```\r\n![a](b)\r\n```\r\n![a](b)":         "```\r\n![a](b)\r\n```\r\n! [a](b)",
		"````\n```\n![a](b)\n":                     "````\n```\n! [a](b)\n",
		"~~~\n![a](b)\n~~~":                        "~~~\n! [a](b)\n~~~",
		"```c++\na[![b]] <i x=1>\n``` \n![a](b)":   "```c++\na[![b]] <i x=1>\n``` \n! [a](b)",
	} {
		got, c := pieces(&scope{}, text)
		require.Equal(t, want, got)
		require.Empty(t, c.flags)
		got, _ = pieces(&scope{}, strings.SplitAfter(text, "")...)
		require.Equal(t, want, got)
		again, _ := pieces(&scope{}, got)
		require.Equal(t, want, again, "what is text stays as it is")
	}
}

var anyAddress = regexp.MustCompile(`(?i)evil\.example|https?://[a-z]|javascript:[a-z]|//evil|\bwww\.[a-z]`)

var markdown = goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithRendererOptions(render.WithUnsafe()))

// loads is the first tag of a text that loads something or runs, as a browser reads it: "" if there is none. The text
// is Markdown that may have HTML in it, or HTML.
func loads(t require.TestingT, text string) string {
	var page bytes.Buffer
	require.NoError(t, markdown.Convert([]byte(text), &page))
	pages := []string{page.String()}
	if !strings.Contains(text, "```") {
		pages = append(pages, text, html.UnescapeString(text), envelope.Fold(text).Text)
	}
	harmless := map[string]bool{"a href": true, "a title": true, "code class": true, "ol start": true, "input type": true}
	for _, page := range pages {
		for z := html.NewTokenizer(strings.NewReader(page)); z.Next() != html.ErrorToken; {
			tag := z.Token()
			if tag.Type != html.StartTagToken && tag.Type != html.SelfClosingTagToken {
				continue
			}
			if tag.Data == "script" || tag.Data == "style" {
				return tag.String()
			}
			for _, a := range tag.Attr {
				if a.Val != "" && (page != pages[0] || !harmless[tag.Data+" "+a.Key]) {
					return tag.String()
				}
			}
		}
	}
	if len(pages) > 1 && strings.Contains(envelope.Fold(strings.ReplaceAll(text, "\r", " ")).Text, "![") {
		return "!["
	}
	return ""
}

func TestRangesAndFootnotesAreRead(t *testing.T) {
	t.Parallel()
	given := numbered(append(append([]Passage{}, three...), three...)...)
	for text, want := range map[string]string{
		"So [1-3].":     "So [1][2][3].",
		"So [1–3].":     "So [1][2][3].",
		"So [2 - 3].":   "So [2][3].",
		"So [1-6].":     "So [1][2][3].",
		"So [^1].":      "So [1].",
		"So [^1, ^2].":  "So [1][2].",
		"So ［１，２］.":     "So [1][2].",
		"So [1 and 2].": "So [1][2].",
		"So [1; 9].":    "So [1].",
		"So \\[1\\].":   "So [1].",
		"So [1].\n\n[^1]: Guide, https://evil.example/x": "So [1].\n\n",
	} {
		c := newChecker(given)
		require.Equal(t, want, c.write(text)+c.close(false))
	}
}

// A year in brackets is prose, and a figure as any other; no other number is.
func TestAYearInBracketsIsNoMarker(t *testing.T) {
	t.Parallel()
	s := hostile()
	s.supports = append(s.supports, &support{text: "It was so in 2019."})
	for text, want := range map[string]struct {
		shown string
		flags []event.Flag
	}{
		"In [2019] it cost 14 crowns [1].": {"In [2019] it cost 14 crowns [1].", nil},
		"In [2019] it cost 14 crowns.":     {"In [2019] it cost 14 crowns.", nil},
		"In [1987] it cost 14 crowns [1].": {"In [1987] it cost 14 crowns [1].\n\n" + "Not in the cited passages, please check: 1987.", []event.Flag{
			{Kind: Unverified, Text: "1987"},
		}},
		"So [1, 2019].": {"So [1].", []event.Flag{{Kind: UnknownMarker, Text: "2019"}}},
		"So [^2019].":   {"So.", []event.Flag{{Kind: UnknownMarker, Text: "2019"}}},
		"So [3019] and [219].": {
			"So and.", []event.Flag{{Kind: UnknownMarker, Text: "3019"}, {Kind: UnknownMarker, Text: "219"}},
		},
	} {
		got, c := pieces(s, text)
		require.Equal(t, want.shown, got)
		require.Equal(t, want.flags, c.flags, text)
	}
}

// What looks like a host is taken for one, unless it is clearly the name of a file.
func TestNamesOfFilesAndHosts(t *testing.T) {
	t.Parallel()
	for text, removed := range map[string]bool{
		"See go.mod, main.rs and README.md [1].": false,
		"See app.js/x or page.html/y [1].":       false,
		"See www.evil.example now [1].":          true,
		"See evil.md/x [1].":                     true, // the ending of a country
		"See evil.rs/x [1].":                     true,
	} {
		got, _ := pieces(hostile(), text)
		require.Equal(t, removed, got != text, got)
	}
}

// A sentence that is clearly from another passage gets that one's number.
func TestAWrongMarkerIsMended(t *testing.T) {
	t.Parallel()
	given := numbered(
		Passage{Text: "A ferry ticket to the northern island costs 14 crowns for adults."},
		Passage{Text: "The old bridge over the river opens for ships at half past two every afternoon."},
		Passage{Text: "The museum of fishing shows nets, boats and lamps from four centuries."})
	for text, want := range map[string]string{
		"A ferry ticket to the northern island costs 14 crowns [2].": "A ferry ticket to the northern " +
			"island costs 14 crowns [1].",
		"The old bridge opens for ships at half past two every afternoon [1].": "The old bridge opens for ships at " +
			"half past two every afternoon [2].",
		"A ferry ticket to the northern island costs 14 crowns [1].": "A ferry ticket to the northern " +
			"island costs 14 crowns [1].",
		"Tickets are 14 crowns [1].": "Tickets are 14 crowns [1].",
		"A ferry ticket costs 14 crowns and the bridge opens at half past two [1].": "A ferry ticket costs 14 crowns and " +
			"the bridge opens at half past two [1].",
		"Билет на паром стоит 14 крон для взрослых [1].": "Билет на паром стоит 14 крон для " +
			"взрослых [1].",
	} {
		c := newChecker(given)
		require.Equal(t, want, c.write(text)+c.close(false))
		require.Equal(t, want != text, len(c.flags) == 1 && c.flags[0].Kind == Misattributed, text)
	}
}

func TestQuotationsStandInWhatIsCited(t *testing.T) {
	t.Parallel()
	for text, bad := range map[string]bool{
		`It says "a ferry ticket costs 14 crowns" [1].`:              false,
		`It says “A ferry  ticket costs 14 crowns.” [1]`:             false,
		`It says „A ferry … costs 14 crowns“ [1].`:                   false,
		`It says «a ferry ticket is free for everyone» [1].`:         true,
		`It says "tickets are sold on board only" [1].`:              true,
		`They call it "the boat" [1].`:                               false,
		"It costs 14 [1]: `\"a ferry ticket is free for everyone\"`": false,
		`You asked for "what the ferry costs" [1].`:                  false,
	} {
		s := hostile()
		s.supports = append(s.supports, &support{text: "what the ferry costs"})
		got, c := pieces(s, text)
		found := false
		for _, f := range c.flags {
			found = found || f.Kind == BadQuote
		}
		require.Equal(t, bad, found, text)
		require.Equal(t, bad, strings.Contains(got, "Not word for word in the cited passages: "), got)
	}
}

func TestAPassageThatSharesNothingIsNotQuoted(t *testing.T) {
	t.Parallel()
	a := check("Whales sing [1].", numbered(Passage{ID: "a#0", Text: "A ferry ticket costs 14 crowns.", Start: 7}))
	require.Len(t, a.Citations, 1)
	require.Empty(t, a.Citations[0].Quote)
	require.Zero(t, a.Citations[0].Start+a.Citations[0].End)
}

// long is a text of about this many bytes, of sentences that differ, and what it may
// rest on: twenty passages and a history of a hundred messages.
func long(size int) (string, *scope) {
	sentence := func(i int) string {
		return fmt.Sprintf("Ticket %d of line %d costs %d crowns on %d May, as the office says, see "+
			"https://docs.example/%d for more. ",
			i%200, i%7, i%200*3, i%28+1, i%20)
	}
	var passages []Passage
	for n := range 20 {
		var text strings.Builder
		for i := range 10 {
			text.WriteString(sentence(n*10 + i))
		}
		passages = append(passages, Passage{ID: fmt.Sprint(n), Source: fmt.Sprintf("https://docs.example/%d", n),
			Text: text.String()})
	}
	s := numbered(passages...)
	var history []string
	for n := range 100 {
		history = append(history, strings.Repeat(sentence(n), 10))
	}
	s.supports = []*support{{text: strings.Join(history, "\n\n"), links: true}}
	var text strings.Builder
	for i := 0; text.Len() < size; i++ {
		fmt.Fprintf(&text,
			"%sIt says “Ticket %d of line %d costs %d crowns”, see `a[9]` [%d][%d]! Ещё раз о том же: <b>%d</b> [%d].\n",
			sentence(i), i%200, i%7, i%200*3, i%20+1, i%17+1, i%200*3, i%200/10+1)
	}
	return text.String(), s
}

// The cost of a long answer grows as its length.
func BenchmarkChecker(b *testing.B) {
	for _, size := range []int{10, 100, 1000} {
		text, s := long(size << 10)
		for kind, s := range map[string]*scope{"passages": s, "none": {}} {
			b.Run(fmt.Sprintf("%s/%dKB", kind, size), func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				for range b.N {
					of := &scope{passages: s.passages}
					for _, sup := range s.supports {
						of.supports = append(of.supports, &support{text: sup.text, links: sup.links})
					}
					c := newChecker(of)
					for rest := text; rest != ""; {
						n := min(4, len(rest))
						c.write(rest[:n])
						rest = rest[n:]
					}
					c.close(true)
				}
			})
		}
	}
}

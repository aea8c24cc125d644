package proxy_test

import (
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/redistest"
	"mneme/internal/upstreamtest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// transcript is what goes over the wire in a case, to be read by people: each call
// of a client, what leaves for the vendor because of it, and what the client gets.
// Signatures and ids, which differ from run to run, are numbered as they come.
type transcript struct {
	world *world
	text  strings.Builder
	calls int
	shown map[string]int    // of each vendor's requests
	names map[string]string // of what differs
}

// chance finds what differs from run to run, created what does by the second.
var (
	chance  = regexp.MustCompile(`"(?:signature|data)":"([^"]{8,})"|\b(toolu|call|msg|chatcmpl)[_-]\w{20,}`)
	created = regexp.MustCompile(`"created":\d+`)
)

func (t *transcript) plain(text string) string {
	for _, found := range chance.FindAllStringSubmatch(text, -1) {
		value, kind := found[1], "signature"
		if found[2] != "" {
			value, kind = found[0], found[2]
		}
		if t.names[value] == "" {
			of := 1
			for _, name := range t.names {
				if strings.HasPrefix(name, "<"+kind+" ") {
					of++
				}
			}
			t.names[value] = fmt.Sprintf("<%s %d>", kind, of)
		}
		text = strings.ReplaceAll(text, value, t.names[value])
	}
	return created.ReplaceAllString(text, `"created":<time>`)
}

// section writes one part of a call, as a file of a txtar archive.
func (t *transcript) section(of, text string) {
	fmt.Fprintf(&t.text, "-- %d %s --\n%s\n", t.calls, of, strings.TrimSuffix(t.plain(text), "\n"))
}

func (t *transcript) call(path string, header http.Header, body []byte, got answered) {
	t.calls++
	t.section("client", path+headers(header)+"\n"+laidOut(string(body)))
	for _, name := range slices.Sorted(maps.Keys(t.world.vendors)) {
		all := t.world.vendors[name].Requests()
		for _, r := range all[t.shown[name]:] {
			left := laidOut(string(r.Body))
			if string(r.Body) == string(body) {
				left = "as it came"
			}
			t.section("to "+name, r.Path+headers(r.Header)+"\n"+left)
			if r.Rejection != "" {
				t.section(name+" refuses", r.Rejection)
			}
		}
		t.shown[name] = len(all)
	}
	t.section("answer", fmt.Sprint(got.status, " ", got.header.Get("Content-Type"), mended(got.header), "\n",
		laidOut(got.body)))
}

// mended is what an answer says of how its request was changed.
func mended(h http.Header) string {
	if names := h.Get("X-AG-Mended"); names != "" {
		return "\nX-AG-Mended: " + names
	}
	return ""
}

// headers are those that say something of thinking or of the call's owner.
func headers(h http.Header) string {
	out := ""
	for _, name := range []string{"Anthropic-Beta", "X-AG-Conversation-Id"} {
		if v := h.Get(name); v != "" {
			out += "\n" + name + ": " + v
		}
	}
	return out
}

// laidOut is JSON with its messages, and blocks where there are many, on lines of
// their own; nothing else is changed.
func laidOut(body string) string {
	indents := map[int]string{} // by where a line begins
	each := func(list gjson.Result, indent string) {
		for _, e := range list.Array() {
			indents[e.Index] = "\n" + indent
		}
	}
	for _, name := range []string{"messages", "content"} {
		list := gjson.Get(body, name)
		if !list.IsArray() {
			continue
		}
		each(list, "  ")
		for _, m := range list.Array() {
			if content := m.Get("content"); content.IsArray() && len(content.Array()) > 1 {
				each(content, "    ")
			}
		}
	}
	for _, at := range slices.Backward(slices.Sorted(maps.Keys(indents))) {
		body = body[:at] + indents[at] + body[at:]
	}
	return body
}

// transcribed is a case that is read as much as it is run.
type transcribed struct {
	name, fault string
	refusals    int
	backends    []backendCase
	play        func(t *testing.T, w *world)
}

var transcripts = []transcribed{
	{"tool loop", "a client of chat completions never shows thinking, and the round of a tool comes back without it.", 0,
		[]backendCase{claude.told(budgeted)}, func(_ *testing.T, w *world) {
			g := w.gateway()
			c := g.chat("claude-sonnet-4-5")
			c.within("c1")
			toolTurn(w.vendors["claude"], "one")
			c.say("First")
			c.say("Second")
		}},
	{"interleaved thinking", "thinking between two calls of tools is kept for the first of them only.", 0,
		[]backendCase{claude}, func(_ *testing.T, w *world) {
			g := w.gateway()
			c := g.messages("claude-opus-4-8")
			c.within("c1")
			c.damage = damages["thinking dropped"]
			w.vendors["claude"].Queue(
				upstreamtest.Reply(upstreamtest.Think("I look."), upstreamtest.Use("look", `{"q":"a"}`)),
				upstreamtest.Reply(upstreamtest.Think("Not enough."), upstreamtest.Use("look", `{"q":"b"}`),
					upstreamtest.Use("look", `{"q":"c"}`)),
				upstreamtest.Reply(upstreamtest.Think("Now."), upstreamtest.Say("Done.")))
			c.say("First")
			c.say("Second")
		}},
	{"backend switched", "after a switch the new vendor is sent thinking and signatures of the old one.", 0,
		[]backendCase{claude.told(budgeted), kimi.told(budgeted)}, func(_ *testing.T, w *world) {
			g := w.gateway()
			c := g.messages("claude-sonnet-4-5")
			c.within("c1")
			toolTurn(w.vendors["claude"], "alpha")
			c.say("One")
			g.use("kimi")
			toolTurn(w.vendors["kimi"], "beta")
			c.say("Two")
		}},
	{"there and back again", "A → B → A loses A's thinking: it was stripped for B, or a counter went up.", 0,
		[]backendCase{claude.told(budgeted), kimi.told(budgeted)}, func(_ *testing.T, w *world) {
			g := w.gateway()
			c := g.messages("claude-opus-4-8")
			c.within("c1")
			w.vendors["claude"].Queue(upstreamtest.Reply(upstreamtest.Think("alpha thinks"), upstreamtest.Say("One.")))
			c.say("One")
			g.use("kimi")
			w.vendors["kimi"].Queue(upstreamtest.Reply(upstreamtest.Think("beta thinks"), upstreamtest.Say("Two.")))
			c.say("Two")
			g.use("claude")
			c.say("Three")
		}},
	{"restart between two turns", "what was proven is lost at a restart, and the round of a tool is refused.", 0,
		[]backendCase{claude}, func(t *testing.T, w *world) {
			w.shares(redistest.Start(t))
			g := w.gateway()
			c := g.messages("claude-sonnet-4-5")
			c.within("c1")
			c.damage = damages["thinking dropped"]
			w.vendors["claude"].Queue(upstreamtest.Reply(upstreamtest.Think("one thinks"),
				upstreamtest.Use("look", `{"q":"one"}`)))
			c.user(textOf("First"))
			use := c.step()[1]
			g.stop()
			c.gateway = w.gateway()
			c.user(block{Type: "tool_result", ToolUseID: use.ID, Content: "result"})
			c.proceed()
		}},
	damaged("thinking trimmed", "a client trims texts, and with them what a signature is bound to."),
	damaged("thinking merged", "a client joins the thinking of an answer to one block."),
	damaged("thinking doubled", "a client that came back from an error sends a block twice."),
	damaged("thinking reversed", "each block is genuine, and none stands where it stood."),
	damaged("signatures dropped", "a parser that knows no signature_delta replays thinking without its signature."),
	damaged("signatures of another block", "a client mixes up which signature belongs to which block."),
	{"foreign signature", "thinking that nobody knows is stripped before anybody asked for that, or again in each turn.",
		1,
		[]backendCase{claude}, func(_ *testing.T, w *world) {
			g := w.gateway()
			c := g.messages("claude-opus-4-8")
			c.within("c1")
			c.history = []message{
				{role: "user", content: []block{textOf("Hi")}},
				{
					role: "assistant", content: []block{
						{Type: "thinking", Thinking: "made elsewhere", Signature: pointer("Zm9yZ2VkIGVsc2V3aGVyZQ==")}, textOf("Hello."),
					},
				},
			}
			c.say("And?")
			c.say("And then?")
		}},
	{"redacted and empty thinking", "a block without text has the hash of nothing, and is taken for another one.", 0,
		[]backendCase{claude}, func(_ *testing.T, w *world) {
			g := w.gateway()
			c := g.messages("claude-opus-4-8")
			c.within("c1")
			c.damage = damages["thinking dropped"]
			w.vendors["claude"].Queue(
				upstreamtest.Reply(upstreamtest.Omitted(), upstreamtest.Redacted(), upstreamtest.Say("One.")),
				upstreamtest.Reply(upstreamtest.Omitted(), upstreamtest.Say("Two.")))
			c.say("First")
			c.say("Second")
			c.say("Third")
		}},
	{"side request", "a title without thinking, or counting tokens, evicts what was confirmed.", 0,
		[]backendCase{claude}, func(_ *testing.T, w *world) {
			g := w.gateway()
			c := g.messages("claude-opus-4-8")
			c.within("c1")
			c.damage = damages["thinking dropped"]
			toolTurn(w.vendors["claude"], "one")
			c.say("First")
			title := g.messages("claude-haiku-4-5")
			title.within("c1")
			title.header.Del("Anthropic-Beta")
			title.thinking, title.tools, title.maxTokens, title.system = "", false, 64, `"Give the conversation a title."`
			title.say("Hello")
			c.count()
			c.say("Second")
		}},
	{"recurring tool ids", "a vendor counts its calls from 0 in every answer, and two results are for one call.", 0,
		[]backendCase{kimi}, func(_ *testing.T, w *world) {
			g := w.gateway()
			c := g.messages("kimi-k2-thinking")
			c.within("c1")
			toolTurn(w.vendors["kimi"], "one")
			c.say("First")
			toolTurn(w.vendors["kimi"], "two")
			c.say("Second")
		}},
	{"reasoning required", "a vendor wants reasoning on turns with tools, and SDKs never send it.", 0,
		[]backendCase{deepSeekChat}, func(_ *testing.T, w *world) {
			g := w.gateway()
			c := g.chat("deepseek-reasoner")
			c.within("c1")
			toolTurn(w.vendors["deepseek-chat"], "one")
			c.say("First")
			c.say("Second")
		}},
	{"time of day", "the system prompt tells the time, and a vendor that binds thinking to it refuses every turn.", 1,
		[]backendCase{prefixChecking}, func(_ *testing.T, w *world) {
			g := w.gateway()
			c := g.messages("claude-opus-5-5")
			c.within("c1")
			c.tools = false
			for i, said := range []string{"First", "Second", "Third", "Fourth"} {
				c.system = fmt.Sprintf(`"It is 12:%02d."`, i)
				c.say(said)
			}
		}},
	{"count tokens", "counting the tokens of a history with bad thinking fails, though answering it would not.", 1,
		[]backendCase{claude}, func(_ *testing.T, w *world) {
			g := w.gateway()
			c := g.messages("claude-opus-4-8")
			c.history = []message{
				{role: "user", content: []block{textOf("Hi")}},
				{
					role: "assistant", content: []block{
						{Type: "thinking", Thinking: "forged", Signature: pointer("Zm9yZ2VkIGVsc2V3aGVyZQ==")}, textOf("Hello."),
					},
				},
				{role: "user", content: []block{textOf("And?")}},
			}
			c.count()
		}},
	{"teammate beside main",
		"a subagent's call in the middle of a tool loop moves the session, and the main agent's thinking is gone.", 0,
		[]backendCase{claude, kimi}, func(_ *testing.T, w *world) {
			w.config.Teammates = map[string]string{"analytic": "kimi"}
			g := w.gateway()
			c := g.messages("claude-sonnet-4-5")
			c.within("c1")
			c.damage = damages["thinking dropped"]
			toolTurn(w.vendors["claude"], "main")
			c.user(textOf("First"))
			use := c.step()[1]
			mate := g.messages("claude-sonnet-4-5")
			mate.within("c1")
			mate.prefix = "/teammate/analytic"
			mate.say("Something else")
			c.user(block{Type: "tool_result", ToolUseID: use.ID, Content: "result"})
			c.proceed()
		}},
	{"stream translated", "a stream of the other dialect loses a piece, an id or its end.", 0,
		[]backendCase{claude.told(budgeted)}, func(_ *testing.T, w *world) {
			g := w.gateway()
			c := g.chat("claude-sonnet-4-5")
			c.within("c1")
			c.stream = true
			toolTurn(w.vendors["claude"], "one")
			c.say("First")
		}},
}

// damaged is a dialogue of two turns in which the client damages what it replays.
func damaged(name, fault string) transcribed {
	return transcribed{name, fault, 0, []backendCase{claude}, func(_ *testing.T, w *world) {
		c := w.gateway().messages("claude-opus-4-8")
		c.within("c1")
		c.damage = damages[name]
		w.vendors["claude"].Queue(
			upstreamtest.Reply(upstreamtest.Think(" I look. "), upstreamtest.Say("Looking."), upstreamtest.Think("Where?"),
				upstreamtest.Use("look", `{"q":"one"}`)),
			upstreamtest.Reply(upstreamtest.Think("Found."), upstreamtest.Say("Done.")))
		c.say("First")
		c.say("Second")
	}}
}

// The wire of the main cases, in testdata/transcripts. With -update they are written
// anew; then read them, and ask of each line whether it should be so.
func TestConformanceTranscripts(t *testing.T) {
	t.Parallel()
	for _, c := range transcripts {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, c.backends...)
			w.transcript = &transcript{world: w, shown: map[string]int{}, names: map[string]string{}}
			c.play(t, w)
			w.conforms(c.refusals)
			got := "Fault: " + c.fault + "\n\n" + w.transcript.text.String()
			golden := filepath.Join("testdata", "transcripts", strings.ReplaceAll(c.name, " ", "-")+".txtar")
			if *update {
				require.NoError(t, os.MkdirAll(filepath.Dir(golden), 0o755))
				require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err, "go test -run TestConformanceTranscripts ./proxy -update writes it")
			require.Equal(t, string(want), got)
		})
	}
}

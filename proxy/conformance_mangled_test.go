package proxy_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/internal/upstreamtest"
)

// mangle is a way in which clients replay a history otherwise than it was.
type mangle struct {
	// replay changes a copy of the history that is about to be sent; newest is the
	// index of what the vendor has not seen yet.
	replay func(r *rand.Rand, history []message, newest int) []message
	// turn is what happens before a turn of the user.
	turn func(m *mangled, t *talk)
	// loses: thinking of the current turn may be lost, since what it is bound to, or
	// the answer itself, is not what it was.
	loses bool
}

// always is a mangle that has nothing to do with what is new.
func always(damage func([]message) []message) mangle {
	return mangle{replay: func(_ *rand.Rand, history []message, _ int) []message { return damage(history) }}
}

// texts changes every text that the vendor has seen, those of results included.
func texts(change func(string) string) func(*rand.Rand, []message, int) []message {
	return func(_ *rand.Rand, history []message, newest int) []message {
		for i := range history[:newest] {
			for j := range history[i].content {
				b := &history[i].content[j]
				b.Text, b.Content = change(b.Text), change(b.Content)
			}
		}
		return history
	}
}

// results changes the results of older turns.
func results(change func([]block) []block) func(*rand.Rand, []message, int) []message {
	return func(_ *rand.Rand, history []message, newest int) []message {
		for i := range history[:newest] {
			if len(history[i].content) > 0 && history[i].content[0].Type == "tool_result" {
				history[i].content = change(history[i].content)
			}
		}
		return history
	}
}

func isResult(m message) bool {
	return m.role == "user" && len(m.content) > 0 && m.content[0].Type == "tool_result"
}

var mangles = map[string]mangle{
	"nothing":              {},
	"line ends":            {replay: texts(func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") })},
	"texts trimmed":        {replay: texts(func(s string) string { return strings.TrimSpace(s) })},
	"texts padded":         {replay: texts(func(s string) string { return pad(s) })},
	"thinking dropped":     always(damages["thinking dropped"]),
	"thinking trimmed":     always(damages["thinking trimmed"]),
	"thinking shortened":   always(damages["thinking shortened"]),
	"thinking merged":      always(damages["thinking merged"]),
	"thinking doubled":     always(damages["thinking doubled"]),
	"thinking last":        always(damages["thinking last"]),
	"thinking reversed":    always(damages["thinking reversed"]),
	"thinking as text":     always(damages["thinking as text"]),
	"signatures dropped":   always(damages["signatures dropped"]),
	"signatures emptied":   always(damages["signatures emptied"]),
	"signatures exchanged": always(damages["signatures of another block"]),
	"inputs encoded anew":  always(damages["inputs encoded anew"]),
	"ids altered":          always(idsAltered),
	"calls doubled":        always(answers(func(content []block) []block { return doubled(content, "tool_use") })),
	"results doubled": always(func(history []message) []message {
		for i := range history {
			history[i].content = doubled(history[i].content, "tool_result")
		}
		return history
	}),
	"results missing": {replay: results(func(content []block) []block { return content[:1] })},
	"rounds forgotten": {replay: func(_ *rand.Rand, history []message, _ int) []message {
		at := starts(history)
		current := at[len(at)-1]
		return append(roundsForgotten(history[:current]), history[current:]...)
	}},
	"calls forgotten": {replay: func(_ *rand.Rand, history []message, _ int) []message {
		at := starts(history)
		current := at[len(at)-1]
		return append(callsForgotten(history[:current]), history[current:]...)
	}},
	"answers truncated": {loses: true, replay: func(_ *rand.Rand, history []message, newest int) []message {
		for i := range history[:max(0, newest-3)] {
			for j := range history[i].content {
				if b := &history[i].content[j]; history[i].role == "assistant" && len(b.Text) > 6 {
					b.Text = b.Text[:6]
				}
			}
		}
		return history
	}},
	"a window": {loses: true, replay: func(_ *rand.Rand, history []message, _ int) []message {
		return window(history, 6)
	}},
	"the front cut each turn": {loses: true, replay: func(_ *rand.Rand, history []message, _ int) []message {
		if at := starts(history); len(at) > 2 {
			return history[at[len(at)-2]:]
		}
		return history
	}},
	"the system prompt changed each turn": {loses: true, turn: func(m *mangled, t *talk) {
		t.system = fmt.Sprintf(`"You are brief. It is %d seconds past noon."`, m.r.IntN(3600))
	}},
	"edits":         {loses: true, turn: edit},
	"rewinds":       {turn: rewind},
	"regenerations": {turn: regenerate},
	"two backends":  {turn: (*mangled).otherBackend},
	"restarts":      {turn: (*mangled).restart},
	"thinking dropped, restarts, rewinds": {
		replay: func(_ *rand.Rand, history []message, _ int) []message { return damages["thinking dropped"](history) },
		turn: func(m *mangled, t *talk) {
			m.restart(t)
			rewind(m, t)
		},
	},
}

func pad(s string) string {
	if strings.TrimSpace(s) == "" {
		return s
	}
	return "\n" + s + " \n"
}

func doubled(content []block, kind string) []block {
	var out []block
	for _, b := range content {
		out = append(out, b)
		if b.Type == kind {
			out = append(out, b)
		}
	}
	return out
}

// idsAltered calls every tool use by another name, the same in each request.
func idsAltered(history []message) []message {
	for i := range history {
		for j := range history[i].content {
			b := &history[i].content[j]
			if b.ID != "" {
				b.ID = "mine_" + b.ID[len(b.ID)-12:]
			}
			if b.ToolUseID != "" {
				b.ToolUseID = "mine_" + b.ToolUseID[len(b.ToolUseID)-12:]
			}
		}
	}
	return history
}

// roundsForgotten keeps of each turn what was said in the end, as stores of chats do.
func roundsForgotten(history []message) []message {
	var out []message
	for _, m := range history {
		calls := slices.ContainsFunc(m.content, func(b block) bool { return b.Type == "tool_use" })
		if !isResult(m) && !calls {
			m.content = withoutThinking(m.content)
			out = append(out, m)
		}
	}
	return out
}

// callsForgotten keeps all that was said, and nothing of the tools.
func callsForgotten(history []message) []message {
	var out []message
	for _, m := range history {
		m.content = slices.DeleteFunc(withoutThinking(slices.Clone(m.content)), func(b block) bool {
			return b.Type == "tool_use" || b.Type == "tool_result"
		})
		if len(m.content) > 0 {
			out = append(out, m)
		}
	}
	return out
}

// window is the newest messages, from one on that is the user's.
func window(history []message, size int) []message {
	for i := max(0, len(history)-size); i > 0; i-- {
		if history[i].role == "user" && !isResult(history[i]) {
			return history[i:]
		}
	}
	return history
}

func edit(m *mangled, t *talk) {
	if len(t.history) == 0 || m.r.IntN(2) == 0 {
		return
	}
	at := &t.history[m.r.IntN(len(t.history))]
	for i := range at.content {
		if b := &at.content[i]; b.Type == "text" && b.Text != "" {
			b.Text = "Edited: " + b.Text
			return
		}
	}
}

// starts are the indexes of what the user said.
func starts(history []message) (at []int) {
	for i, m := range history {
		if m.role == "user" && !isResult(m) {
			at = append(at, i)
		}
	}
	return at
}

func rewind(m *mangled, t *talk) {
	if at := starts(t.history); len(at) > 1 && m.r.IntN(2) == 0 {
		t.history = t.history[:at[1+m.r.IntN(len(at)-1)]]
	}
}

func regenerate(m *mangled, t *talk) {
	at := starts(t.history)
	if len(at) == 0 || m.r.IntN(2) == 0 {
		return
	}
	t.history = t.history[:at[len(at)-1]+1]
	m.proceed(t)
}

// mangled plays conversations that are mangled in one way.
type mangled struct {
	*testing.T
	r      *rand.Rand
	world  *world
	front  *front
	kind   mangle
	name   string
	named  bool // the client names its conversations
	other  bool // the other backend is active
	active string
	shared string // the tag of what all conversations may show

	mu   sync.Mutex             // guards seen
	seen []upstreamtest.Request // by vendors, of the call that is made

	kept, all         map[string]int // thinking blocks of current turns, by mangle
	keptOlder, older  map[string]int // and of older ones
	calls, extra      int
	conversations, no int
}

// talk is one conversation.
type talk struct {
	*messagesClient
	tag      string
	thoughts int
	extra    int
}

func (m *mangled) otherBackend(*talk) {
	if m.r.IntN(2) == 0 {
		m.other = !m.other
		m.front.use(map[bool]string{false: m.active, true: "kimi"}[m.other])
	}
}

func (m *mangled) restart(t *talk) {
	if m.r.IntN(2) == 0 {
		m.front.stop()
		m.front = m.world.gateway()
	}
	t.gateway = m.front
}

// start makes a world of its own for some conversations: what vendors remember is
// bounded.
func (m *mangled) start(redis *redistest.Server, of backendCase) {
	watch := func(c *upstreamtest.Config) {
		c.Remember = 1000
		c.Observe = func(r upstreamtest.Request) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.seen = append(m.seen, r)
		}
	}
	m.active = of.name
	m.world = newWorld(m.T, of.with(of.name, watch), kimi.with("kimi", watch))
	m.world.shares(redis)
	m.front = m.world.gateway()
}

// play is one conversation; sometimes beside it another with the same messages.
func (m *mangled) play(model string) {
	m.other = false
	m.front.use(m.active)
	talks := []*talk{m.talk(model)}
	if m.r.IntN(4) == 0 {
		talks = append(talks, m.talk(model))
	}
	for range 2 + m.r.IntN(4) {
		said := m.pick("yes", "yes", "and then?", " two\n\nlines  \n", "жизнь "+strconv.Itoa(m.r.IntN(100)))
		for _, t := range talks {
			t.gateway = m.front
			if m.kind.turn != nil {
				m.kind.turn(m, t)
			}
			t.user(textOf(said))
			m.proceed(t)
		}
	}
	for _, t := range talks {
		require.True(m, t.extra <= 1 || !m.named, "%s: one refusal proves what has to be left out", t.tag)
		m.conversations++
	}
}

func (m *mangled) talk(model string) *talk {
	m.no++
	t := &talk{messagesClient: m.front.messages(model), tag: fmt.Sprintf("<%s %d>", m.name, m.no)}
	conversation := fmt.Sprintf("%s.%d.%d", strings.Map(func(r rune) rune {
		if r == ' ' || r == ',' {
			return '-'
		}
		return r
	}, m.Name()[strings.LastIndex(m.Name(), "/")+1:]), m.no, m.r.Uint32())
	if m.named {
		t.within(conversation)
	}
	if m.kind.replay != nil {
		t.damage = func(history []message) []message {
			newest := len(history)
			for newest > 0 && history[newest-1].role == "user" {
				newest--
			}
			return m.kind.replay(m.r, history, newest)
		}
	}
	return t
}

func (m *mangled) pick(from ...string) string { return from[m.r.IntN(len(from))] }

// answer is what the model says next: thinking of all sorts, texts that come
// again and again, one or more calls unless it is the last.
func (m *mangled) answer(t *talk, last bool) upstreamtest.Answer {
	var blocks []upstreamtest.Block
	think := func() {
		t.thoughts++
		blocks = append(blocks, upstreamtest.Think(fmt.Sprintf("%s%s thought %d of %s\n", m.pick("", " "), m.pick("a", "b"),
			t.thoughts, t.tag)))
	}
	for range 1 + m.r.IntN(2) {
		switch m.r.IntN(6) {
		case 0:
			blocks = append(blocks, upstreamtest.Redacted())
		case 1:
			blocks = append(blocks, upstreamtest.Omitted())
		default:
			think()
		}
	}
	text := m.pick("yes", "yes", "It is so. ", "Let me see:\n\n- one\n- two", "ok "+strconv.Itoa(m.r.IntN(100)))
	if last {
		return upstreamtest.Reply(append(blocks, upstreamtest.Say(text))...)
	}
	if m.r.IntN(2) == 0 {
		blocks = append(blocks, upstreamtest.Say(text))
		if m.r.IntN(2) == 0 {
			think()
		}
	}
	for range 1 + m.r.IntN(2) {
		blocks = append(blocks,
			upstreamtest.Use("look", m.pick(`{}`, `{"q":"x"}`, `{"q":"<x>","n":1.50e+3,"deep":[{"type":"thinking"},null]}`)))
	}
	return upstreamtest.Reply(blocks...)
}

// proceed is a turn of the model with its rounds of tools.
func (m *mangled) proceed(t *talk) {
	for rounds := m.r.IntN(3); ; rounds-- {
		m.world.vendors[map[bool]string{false: m.active, true: "kimi"}[m.other]].Queue(m.answer(t, rounds <= 0))
		t.stream = m.r.IntN(2) == 0
		m.mu.Lock()
		m.seen = nil
		m.mu.Unlock()
		got := t.step()
		m.judge(t)
		var results []block
		for _, b := range got {
			if b.Type == "tool_use" {
				results = append(results, block{Type: "tool_result", ToolUseID: b.ID, Content: looked(string(b.Input)) + " \n"})
			}
		}
		if len(results) == 0 {
			return
		}
		t.user(results...)
	}
}

var tags = regexp.MustCompile(`<[a-z, ]+ [0-9]+>`)

// judge looks at what the vendor saw of the newest call.
func (m *mangled) judge(t *talk) {
	m.mu.Lock()
	defer m.mu.Unlock()
	require.NotEmpty(m, m.seen)
	require.LessOrEqual(m, len(m.seen), 2)
	t.extra += len(m.seen) - 1
	m.calls++
	m.extra += len(m.seen) - 1
	accepted := m.seen[len(m.seen)-1]
	require.Empty(m, accepted.Rejection)
	for _, r := range m.seen {
		for _, tag := range tags.FindAllString(string(r.Body), -1) {
			require.Contains(m, []string{t.tag, m.shared}, tag, "a thought of another conversation:\n%s\nwas sent as\n%s",
				t.sent, r.Body)
		}
	}
	m.sameWords(string(t.sent), string(accepted.Body))
	if len(m.seen) == 1 && !m.kind.loses && !m.other && m.named {
		require.Zero(m, accepted.Lost, "thinking of the current turn:\n%s\nwas sent as\n%s", t.sent, accepted.Body)
	}
	if !m.other {
		m.count(t, string(accepted.Body))
	}
}

// count adds up what is left of the thinking that the client was given.
func (m *mangled) count(t *talk, body string) {
	at := starts(t.history)
	current := at[len(at)-1]
	given, older := 0, 0
	for i, h := range t.history[:len(t.history)-1] { // without the newest answer
		for _, b := range h.content {
			if b.thinks() && i > current {
				given++
			} else if b.thinks() {
				older++
			}
		}
	}
	sent, sentOlder := 0, 0
	messages := gjson.Get(body, "messages").Array()
	last := 0
	for i, h := range messages {
		if h.Get("role").Str == "user" && h.Get("content.0.type").Str != "tool_result" {
			last = i
		}
	}
	for i, h := range messages {
		for _, b := range h.Get("content").Array() {
			if kind := b.Get("type").Str; kind != "thinking" && kind != "redacted_thinking" {
				continue
			}
			if i > last {
				sent++
			} else {
				sentOlder++
			}
		}
	}
	require.LessOrEqual(m, sentOlder, older, "the client shows\n%s\nand the vendor sees\n%s", t.sent, body)
	m.kept[m.name] += sent
	m.all[m.name] += given
	m.keptOlder[m.name] += sentOlder
	m.older[m.name] += older
}

// word is something that was said, its speaker, and whether that is part of a round of
// tools.
type word struct {
	says  string
	round bool
}

var thinkSection = regexp.MustCompile(`(?s)<think>.*?</think>`)

// wordsOf is what a request shows, but for how it is laid out.
func wordsOf(body string) (words []word) {
	add := func(role, text string, round bool) {
		if text = strings.Join(strings.Fields(thinkSection.ReplaceAllString(text, "")), " "); text != "" &&
			text != "(no text)" {
			words = append(words, word{role + ": " + text, round})
		}
	}
	for _, m := range gjson.Get(body, "messages").Array() {
		role, content := m.Get("role").Str, m.Get("content")
		if content.Type == gjson.String {
			add(role, content.Str, false)
			continue
		}
		round := strings.Contains(content.Raw, `"tool_use"`)
		text := ""
		for _, b := range content.Array() {
			if b.Get("type").Str == "text" {
				text += b.Get("text").Str + " "
			}
		}
		add(role, text, round)
	}
	return words
}

// sameWords checks that the vendor sees the conversation that the client shows: all
// of it, in its order, and beside that rounds of tools alone.
func (m *mangled) sameWords(client, vendor string) {
	shown, seen := wordsOf(client), wordsOf(vendor)
	// fits[j] says whether what was seen so far is shown[:j] and rounds.
	fits := make([]bool, len(shown)+1)
	fits[0] = true
	for _, w := range seen {
		for j := len(shown); j >= 0; j-- {
			fits[j] = fits[j] && w.round || j > 0 && fits[j-1] && shown[j-1].says == w.says
		}
	}
	require.True(m, fits[len(shown)], "the vendor sees\n%s\nof a client that shows\n%s", vendor, client)
}

// manyConversations returns how many conversations a test of mangled replays plays, and their seed. MNEME_CONVERSATIONS
// and MNEME_SEED override both. With the race detector a test plays one of each kind.
func manyConversations(t *testing.T, seed uint64) (conversations int, used uint64) {
	testtier.Slow(t)
	conversations = 1_500
	if raced {
		conversations = 1
	}
	for name, set := range map[string]func(uint64){
		"MNEME_CONVERSATIONS": func(n uint64) { conversations = int(n) },
		"MNEME_SEED":          func(n uint64) { seed = n },
	} {
		if s := os.Getenv(name); s != "" {
			n, err := strconv.ParseUint(s, 10, 32)
			require.NoError(t, err, name)
			set(n)
		}
	}
	t.Logf("%d conversations with seed %d", conversations, seed)
	return conversations, seed
}

// A client may replay its history as it likes. The conversation must go on, and must not become another one. With the
// race detector a conversation is named on one vendor and not on the next.
func TestConformanceMangledReplays(t *testing.T) {
	conversations, seed := manyConversations(t, 5)
	redis := redistest.Start(t)
	names := slices.Sorted(maps.Keys(mangles))
	kinds := 2 * len(names) * len(thinkers)
	each := (conversations + kinds - 1) / kinds
	var mu sync.Mutex // guards total
	total := map[string][4]int{}
	t.Run("by", func(t *testing.T) {
		for i, backend := range thinkers {
			for j := range 2 * len(names) {
				name, named := names[j%len(names)], j < len(names)
				if raced && named == ((i+j%len(names))%2 == 0) {
					continue
				}
				of := backend.name + ", " + name
				if !named {
					of = "anonymous, " + of
				}
				t.Run(of, func(t *testing.T) {
					t.Parallel()
					m := &mangled{
						T: t, r: rand.New(rand.NewPCG(seed, uint64(1000*i+j))), name: name, kind: mangles[name], named: named,
						kept: map[string]int{}, all: map[string]int{}, keptOlder: map[string]int{}, older: map[string]int{},
					}
					m.start(redis, backend.of)
					for m.conversations < each {
						m.play(backend.model)
					}
					m.world.checked = true
					require.Empty(t, m.world.refused, "clients heard of thinking")
					mu.Lock()
					defer mu.Unlock()
					total[of] = [4]int{m.kept[name], m.all[name], m.keptOlder[name], m.older[name]}
					t.Logf("%d conversations, %d calls, %d more to the vendor", m.conversations, m.calls, m.extra)
				})
			}
		}
	})
	for _, name := range slices.Sorted(maps.Keys(total)) {
		n := total[name]
		t.Logf("%-56s thinking kept: %.3f of current turns, %.3f of older ones %v", name, share(n[0], n[1]),
			share(n[2], n[3]), n)
	}
}

// Fault: users whose chats begin alike get into each other's way. They have one system prompt and say "Hi" first,
// or all go on from one answer that their application has put before each chat, with its thinking; they come in turns,
// and some replay what they got carelessly: 60 of these, and with the race detector 20 of each.
func TestConformanceManyUsersWithOneFront(t *testing.T) {
	_, seed := manyConversations(t, 6)
	redis := redistest.Start(t)
	for i, backend := range thinkers {
		for _, front := range []string{"a greeting", "an answer"} {
			for _, damage := range []string{"nothing", "thinking dropped", "texts padded"} {
				name, users := backend.name+", "+front+", "+damage, 60
				switch {
				case raced:
					users = 20
				case damage == "nothing" && backend.name == "bound" && front == "an answer":
					users = 1000
				}
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					m := &mangled{
						T: t, r: rand.New(rand.NewPCG(seed, uint64(i))), name: damage, kind: mangles[damage],
						kept: map[string]int{}, all: map[string]int{}, keptOlder: map[string]int{}, older: map[string]int{},
					}
					m.start(redis, backend.of)
					first := m.talk(backend.model)
					first.system = `"You are brief."`
					first.user(textOf("Hi"))
					m.proceed(first)
					m.shared = first.tag
					talks := make([]*talk, users)
					for i := range talks {
						talks[i] = m.talk(backend.model)
						talks[i].system = first.system
						if front == "an answer" {
							talks[i].history = slices.Clone(first.history)
						}
					}
					for _, said := range []string{"Hi", "and then?", "yes"} {
						for _, t := range talks {
							t.user(textOf(said))
							m.proceed(t)
						}
					}
					m.world.checked = true
					require.Empty(t, m.world.refused, "clients heard of thinking")
					t.Logf("%-40s thinking kept: %.3f of current turns (%d of %d), %.3f of older ones (%d of %d); %d calls, %d more",
						name, share(m.kept[damage], m.all[damage]), m.kept[damage], m.all[damage],
						share(m.keptOlder[damage], m.older[damage]), m.keptOlder[damage], m.older[damage], m.calls, m.extra)
				})
			}
		}
	}
}

func share(kept, of int) float64 { return float64(kept) / float64(max(1, of)) }

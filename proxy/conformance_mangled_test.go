package proxy_test

import (
	"cmp"
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

// mangle is a way in which clients change a history that they replay.
type mangle struct {
	damage damage
	// turn is called before a turn of the user.
	turn func(m *mangled, t *talk)
	// loses is set if thinking of the current turn may be lost because its answer, or content that it is bound to,
	// has changed.
	loses bool
}

// seenBefore returns the number of messages that the vendor has seen: all before the newest of the user.
func seenBefore(history []message) int {
	n := len(history)
	for n > 0 && history[n-1].role == "user" {
		n--
	}
	return n
}

// texts returns a damage of every text that the vendor has seen, including results.
func texts(change func(string) string) damage {
	return func(history []message) []message {
		for _, m := range history[:seenBefore(history)] {
			for i := range m.content {
				b := &m.content[i]
				b.Text, b.Content = change(b.Text), change(b.Content)
			}
		}
		return history
	}
}

// older returns a damage of all turns before the current one.
func older(change damage) damage {
	return func(history []message) []message {
		at := starts(history)
		current := at[len(at)-1]
		return append(change(history[:current]), history[current:]...)
	}
}

func isResult(m message) bool {
	return m.role == "user" && len(m.content) > 0 && m.content[0].Type == "tool_result"
}

var mangles = map[string]mangle{
	"nothing":         {},
	"line ends":       {damage: texts(strings.NewReplacer("\r\n", "\r\n", "\n", "\r\n").Replace)},
	"texts trimmed":   {damage: texts(strings.TrimSpace)},
	"texts padded":    {damage: texts(pad)},
	"ids altered":     {damage: idsAltered},
	"calls doubled":   {damage: doubled(hasType("tool_use"))},
	"results doubled": {damage: doubled(hasType("tool_result"))},
	"results missing": {damage: func(history []message) []message {
		for i, m := range history[:seenBefore(history)] {
			if isResult(m) {
				history[i].content = m.content[:1]
			}
		}
		return history
	}},
	"rounds forgotten": {damage: older(roundsForgotten)},
	"calls forgotten":  {damage: older(callsForgotten)},
	"answers truncated": {loses: true, damage: func(history []message) []message {
		seen := history[:max(0, seenBefore(history)-3)]
		blocks(hasType("text"), func(b *block) { b.Text = b.Text[:min(len(b.Text), 6)] })(seen)
		return history
	}},
	"a window": {loses: true, damage: since(func(messages int, questions []int) int {
		for _, i := range slices.Backward(questions) {
			if i <= messages-6 {
				return i
			}
		}
		return 0
	}).messages},
	"the front cut each turn": {loses: true, damage: lastTurns.messages},
	"the system prompt changed each turn": {loses: true, turn: func(m *mangled, t *talk) {
		t.system = fmt.Sprintf(`"You are brief. It is %d seconds past noon."`, m.r.IntN(3600))
	}},
	"edits":         {loses: true, turn: randomEdit},
	"rewinds":       {turn: rewind},
	"regenerations": {turn: regenerate},
	"two backends":  {turn: (*mangled).otherBackend},
	"restarts":      {turn: (*mangled).restart},
	"thinking dropped, restarts, rewinds": {damage: damages["thinking dropped"], turn: func(m *mangled, t *talk) {
		m.restart(t)
		rewind(m, t)
	}},
}

func init() {
	for _, name := range []string{
		"thinking dropped", "thinking trimmed", "thinking shortened", "thinking merged", "thinking doubled", "thinking last",
		"thinking reversed", "thinking as text", "signatures dropped", "signatures emptied", "signatures of another block",
		"inputs encoded anew",
	} {
		mangles[name] = mangle{damage: damages[name]}
	}
}

func pad(s string) string {
	if strings.TrimSpace(s) == "" {
		return s
	}
	return "\n" + s + " \n"
}

// idsAltered changes the ids of all calls, in the same way in each request.
func idsAltered(history []message) []message {
	for _, m := range history {
		for i := range m.content {
			for _, id := range []*string{&m.content[i].ID, &m.content[i].ToolUseID} {
				if *id != "" {
					*id = "mine_" + (*id)[len(*id)-12:]
				}
			}
		}
	}
	return history
}

// roundsForgotten keeps the final text of each turn, as chat stores do.
func roundsForgotten(history []message) []message {
	return slices.DeleteFunc(damages["thinking dropped"](history), func(m message) bool {
		return isResult(m) || slices.ContainsFunc(m.content, hasType("tool_use"))
	})
}

// callsForgotten keeps all texts and removes calls and results.
func callsForgotten(history []message) []message {
	for i, m := range history {
		history[i].content = slices.DeleteFunc(m.content, func(b block) bool {
			return b.thinks() || b.Type == "tool_use" || b.Type == "tool_result"
		})
	}
	return slices.DeleteFunc(history, func(m message) bool { return len(m.content) == 0 })
}

func randomEdit(m *mangled, t *talk) {
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

// starts returns the indexes of the user's texts.
func starts(history []message) (at []int) {
	return indexes(history, func(m message) bool { return m.role == "user" && !isResult(m) })
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

// mangled plays random conversations with one kind of mangled replays and records the requests that vendors receive.
type mangled struct {
	*testing.T
	r      *rand.Rand
	world  *world
	front  *front
	name   string // of the kind
	kind   mangle
	named  bool   // the client names its conversations
	tested string // the backend under test
	active string // tested or another backend
	shared string // the tag of content that all conversations may contain
	no     int

	mu   sync.Mutex             // guards seen
	seen []upstreamtest.Request // in the current call

	calls, extra, conversations int // extra are second attempts
	kept, given                 int // thinking blocks of current turns
	keptOlder, givenOlder       int // and of older ones
}

// newMangled starts the vendors, with bounded memory, and a gateway with Redis. The first backend is under test.
func newMangled(t *testing.T, name string, redis *redistest.Server, seed, n uint64, backends ...backendCase) *mangled {
	m := &mangled{T: t, r: rand.New(rand.NewPCG(seed, n)), name: name, kind: mangles[name],
		tested: backends[0].name, active: backends[0].name}
	backends = slices.Clone(backends)
	for i, b := range backends {
		backends[i] = b.with(b.name, func(c *upstreamtest.Config) {
			c.Observe = func(r upstreamtest.Request) {
				m.mu.Lock()
				defer m.mu.Unlock()
				m.seen = append(m.seen, r)
			}
		})
	}
	m.world = newWorld(t, backends...)
	m.world.shares(redis)
	m.front = m.world.gateway()
	return m
}

// call makes one call. It returns the requests that the vendor received. Only the last one is accepted.
func (m *mangled) call(send func()) []upstreamtest.Request {
	m.mu.Lock()
	m.seen = nil
	m.mu.Unlock()
	send()
	m.mu.Lock()
	defer m.mu.Unlock()
	require.NotEmpty(m, m.seen)
	require.LessOrEqual(m, len(m.seen), 2, "one call more at most")
	require.Empty(m, m.seen[len(m.seen)-1].Rejection)
	m.calls++
	m.extra += len(m.seen) - 1
	return m.seen
}

// finish checks that no client saw an error about thinking. It reports the share of thinking that the vendor got back.
func (m *mangled) finish() {
	m.world.checked = true
	require.Empty(m, m.world.refused, "clients saw errors about thinking")
	m.Logf("%d conversations, %d calls, %d more to the vendors", m.conversations, m.calls, m.extra)
	m.Logf("thinking kept: %d of %d of current turns, %d of %d of older ones", m.kept, m.given, m.keptOlder, m.givenOlder)
}

// talk is a conversation in the messages dialect.
type talk struct {
	*messagesClient
	llm   *randomModel
	extra int
}

func (m *mangled) otherBackend(*talk) {
	m.active = pick(m.r, m.tested, kimi.name)
	m.front.use(m.active)
}

func (m *mangled) restart(t *talk) {
	if m.r.IntN(2) == 0 {
		m.front.stop()
		m.front = m.world.gateway()
	}
	t.gateway = m.front
}

// play leads one conversation, and sometimes a second one with the same messages.
func (m *mangled) play(model string) {
	m.active = m.tested
	m.front.use(m.tested)
	talks := []*talk{m.talk(model)}
	if m.r.IntN(4) == 0 {
		talks = append(talks, m.talk(model))
	}
	for range 2 + m.r.IntN(4) {
		text := pick(m.r, "yes", "yes", "and then?", " two\n\nlines  \n", "жизнь "+strconv.Itoa(m.r.IntN(100)))
		m.question(talks, text)
	}
	for _, t := range talks {
		require.True(m, t.extra <= 1 || !m.named, "%s: one refusal proves what has to be left out", t.llm.tag)
		m.conversations++
	}
}

// question is a turn of all talks with the same text.
func (m *mangled) question(talks []*talk, text string) {
	for _, t := range talks {
		t.gateway = m.front
		if m.kind.turn != nil {
			m.kind.turn(m, t)
		}
		t.question(text)
		m.proceed(t)
	}
}

func (m *mangled) talk(model string) *talk {
	m.no++
	t := &talk{messagesClient: m.front.messages(model),
		llm: &randomModel{chooser: m.r, tag: fmt.Sprintf("<%s %d>", m.name, m.no), omitFirst: true}}
	if m.named {
		t.within(fmt.Sprint("c", m.r.Uint64()))
	}
	t.damage = m.kind.damage
	return t
}

// proceed is a turn of the model with its rounds of tools.
func (m *mangled) proceed(t *talk) {
	for rounds := m.r.IntN(3); ; rounds-- {
		m.world.vendors[m.active].Queue(t.llm.answer(rounds <= 0))
		t.stream = m.r.IntN(2) == 0
		var got []block
		m.judge(t, m.call(func() { got = t.step() }))
		results := resultsOf(got)
		if len(results) == 0 {
			return
		}
		for i := range results {
			results[i].Content += " \n"
		}
		t.user(results...)
	}
}

var tags = regexp.MustCompile(`<[a-z, ]+ [0-9]+>`)

// judge checks the vendor's requests of the newest call.
func (m *mangled) judge(t *talk, seen []upstreamtest.Request) {
	t.extra += len(seen) - 1
	accepted := seen[len(seen)-1]
	for _, r := range seen {
		for _, tag := range tags.FindAllString(string(r.Body), -1) {
			require.Contains(m, []string{t.llm.tag, m.shared}, tag, "a thought of another conversation:\n%s\nwas sent as\n%s",
				t.sent, r.Body)
		}
	}
	sent := messagesOf(accepted.Body)
	m.sameWords(messagesOf(t.sent), sent)
	if len(seen) == 1 && !m.kind.loses && m.active == m.tested && m.named {
		require.Zero(m, accepted.Missing, "thinking of the current turn:\n%s\nwas sent as\n%s", t.sent, accepted.Body)
	}
	if m.active == m.tested {
		m.count(t, sent)
	}
}

// count counts the thinking that the client was given and the part of it that the vendor received.
func (m *mangled) count(t *talk, sent []message) {
	given, givenOlder := countThinking(t.history[:len(t.history)-1]) // without the newest answer
	kept, keptOlder := countThinking(sent)
	require.LessOrEqual(m, keptOlder, givenOlder, "the client shows\n%s\nand the vendor sees\n%v", t.sent, sent)
	m.given, m.givenOlder = m.given+given, m.givenOlder+givenOlder
	m.kept, m.keptOlder = m.kept+kept, m.keptOlder+keptOlder
}

// countThinking counts the thinking blocks of the current turn and of older ones.
func countThinking(history []message) (current, older int) {
	at := starts(history)
	for i, m := range history {
		n := len(m.content) - len(withoutThinking(slices.Clone(m.content)))
		if i > at[len(at)-1] {
			current += n
		} else {
			older += n
		}
	}
	return current, older
}

// messagesOf returns the messages of a request to a vendor of messages or chat completions, without its calls.
func messagesOf(body []byte) (list []message) {
	for _, m := range gjson.GetBytes(body, "messages").Array() {
		next := message{role: m.Get("role").Str}
		for _, b := range m.Get("content").Array() { // a text is a list of one
			next.content = append(next.content, block{Type: cmp.Or(b.Get("type").Str, "text"), Text: b.Str + b.Get("text").Str,
				Thinking: b.Get("thinking").Str, Input: []byte(b.Get("input").Raw), Content: b.Get("content").Raw})
		}
		list = append(list, next)
	}
	return list
}

// word is a text with its speaker. round reports whether it is part of a round of tools.
type word struct {
	text  string
	round bool
}

var thinkSection = regexp.MustCompile(`(?s)<think>.*?</think>`)

// wordsOf returns the texts of a request without their layout.
func wordsOf(history []message) (words []word) {
	for _, m := range history {
		text := ""
		for _, b := range m.content {
			text += b.Text + " "
		}
		text = strings.Join(strings.Fields(thinkSection.ReplaceAllString(text, "")), " ")
		if text != "" && text != "(no text)" {
			words = append(words, word{m.role + ": " + text, slices.ContainsFunc(m.content, hasType("tool_use"))})
		}
	}
	return words
}

// sameWords checks that the vendor sees the client's conversation in its order, and otherwise only rounds of tools.
func (m *mangled) sameWords(client, vendor []message) {
	shown, seen := wordsOf(client), wordsOf(vendor)
	// fits[j] reports whether the words so far are shown[:j] and rounds.
	fits := make([]bool, len(shown)+1)
	fits[0] = true
	for _, w := range seen {
		for j := len(shown); j >= 0; j-- {
			fits[j] = fits[j] && w.round || j > 0 && fits[j-1] && shown[j-1].text == w.text
		}
	}
	require.True(m, fits[len(shown)], "the vendor sees\n%v\nof a client that shows\n%v", vendor, client)
}

// manyConversations returns how many conversations a test of mangled replays plays, and their seed. MNEME_CONVERSATIONS
// and MNEME_SEED override both. With the race detector a test plays one of each kind.
func manyConversations(t *testing.T, seed uint64) (conversations int, used uint64) {
	testtier.Slow(t)
	set := func(name string, n uint64) uint64 {
		if s := os.Getenv(name); s != "" {
			var err error
			n, err = strconv.ParseUint(s, 10, 32)
			require.NoError(t, err, name)
		}
		return n
	}
	n := uint64(300)
	if raced {
		n = 1
	}
	n, seed = set("MNEME_CONVERSATIONS", n), set("MNEME_SEED", seed)
	t.Logf("%d conversations with seed %d", n, seed)
	return int(n), seed
}

// A client may replay its history in any way. The conversation must continue and must not become another one. With the
// race detector a conversation is named on one vendor and anonymous on the next.
func TestConformanceMangledReplays(t *testing.T) {
	conversations, seed := manyConversations(t, 5)
	redis := redistest.Start(t)
	names := slices.Sorted(maps.Keys(mangles))
	kinds := 2 * len(names) * len(thinkers)
	each := (conversations + kinds - 1) / kinds
	for i, backend := range thinkers {
		for j := range 2 * len(names) {
			name, named := names[j%len(names)], j < len(names)
			if raced && named == ((i+j%len(names))%2 == 0) {
				continue
			}
			t.Run(fmt.Sprintf("%s, %s, named=%t", backend.name, name, named), func(t *testing.T) {
				t.Parallel()
				m := newMangled(t, name, redis, seed, uint64(1000*i+j), backend, kimi)
				m.named = named
				for m.conversations < each {
					m.play(backend.model)
				}
				m.finish()
			})
		}
	}
}

// Fault: users whose chats begin alike disturb each other. They have one system prompt and say "Hi" first, or they all
// continue one answer with its thinking, which their application puts before each chat. Some replay it carelessly.
func TestConformanceManyUsersWithOneFront(t *testing.T) {
	_, seed := manyConversations(t, 6)
	redis := redistest.Start(t)
	for i, backend := range thinkers {
		for _, front := range []string{"a greeting", "an answer"} {
			for _, damage := range []string{"nothing", "thinking dropped", "texts padded"} {
				name, users := backend.name+", "+front+", "+damage, 20
				if !raced && damage == "nothing" && backend.name == "bound" && front == "an answer" {
					users = 100 // a conversation has at most 16 branches
				}
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					m := newMangled(t, damage, redis, seed, uint64(i), backend, kimi)
					first := m.talk(backend.model)
					first.system = `"You are brief."`
					m.question([]*talk{first}, "Hi")
					m.shared = first.llm.tag
					talks := make([]*talk, users)
					for i := range talks {
						talks[i] = m.talk(backend.model)
						talks[i].system = first.system
						if front == "an answer" {
							talks[i].history = slices.Clone(first.history)
						}
					}
					for _, text := range []string{"Hi", "and then?", "yes"} {
						m.question(talks, text)
					}
					m.finish()
				})
			}
		}
	}
}

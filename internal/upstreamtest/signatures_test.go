package upstreamtest_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	"pgregory.net/rapid"

	"mneme/internal/upstreamtest"
	"mneme/proxy/wire"
)

// agent is a faithful client: it sends back what it got, block by block.
type agent struct {
	t        tester
	v        *upstreamtest.Server
	members  string // of every request, beside the messages
	stream   bool
	betas    string
	messages []string
}

// send asks for the next answer and takes it up.
func (a *agent) send() (status int, body string) {
	a.t.Helper()
	status, body = a.try(a.messages)
	if status == 200 {
		content := gjson.Get(body, "content").Raw
		a.messages = append(a.messages, says("assistant", content))
	}
	return status, body
}

// try sends these messages and gives the answer, put together if it is a stream.
func (a *agent) try(list []string) (status int, body string) {
	a.t.Helper()
	request := "{" + a.members + `,"messages":[` + strings.Join(list, ",") + `]`
	if a.stream {
		request += `,"stream":true`
	}
	w := post(a.t, a.v, "/v1/messages", request+"}", "Anthropic-Beta", a.betas)
	if !a.stream || w.Code != 200 {
		return w.Code, w.Body.String()
	}
	return w.Code, assembled(a.t, w.Body.Bytes())
}

// assembled is the answer that a stream of the messages dialect stands for.
func assembled(t tester, stream []byte) string {
	t.Helper()
	frames, all := wire.NewFrameReader(bytes.NewReader(stream)), wire.Assembler{}
	for {
		f, err := frames.Next()
		if err != nil {
			break
		}
		var e wire.Event
		require.NoError(t, wire.Unmarshal(f.Data, &e))
		require.NoError(t, all.Add(&e))
	}
	body, complete := all.JSON()
	require.True(t, complete)
	return string(body)
}

// ask says something as the user.
func (a *agent) ask(text string) {
	a.messages = append(a.messages, says("user", fmt.Sprintf("%q", text)))
}

// answerCalls gives every call of the last answer its result.
func (a *agent) answerCalls() bool {
	var list []string
	for _, id := range gjson.Get(a.messages[len(a.messages)-1], `content.#(type=="tool_use")#.id`).Array() {
		list = append(list, gives(id.String()))
	}
	if len(list) == 0 {
		return false
	}
	a.messages = append(a.messages, results(list...))
	return true
}

func opusMembers(more string) string {
	return `"model":"` + opus48 + `","max_tokens":9000,` + adaptive + `,"system":"You help.",` + weather + more
}

var blocks = rapid.Custom(func(t *rapid.T) upstreamtest.Block {
	text := rapid.StringMatching(`[a-z "\\é]{1,40}x`)
	switch rapid.IntRange(0, 6).Draw(t, "kind") {
	case 0, 1:
		return upstreamtest.Think(text.Draw(t, "thinking"))
	case 2:
		return upstreamtest.Omitted()
	case 3:
		return upstreamtest.Redacted()
	case 4:
		return upstreamtest.Use("weather",
			fmt.Sprintf(`{"city":%q,"b":1.0, "a":[1]}`, rapid.StringMatching(`[a-z]{0,9}`).Draw(t, "city")))
	}
	return upstreamtest.Say(text.Draw(t, "text"))
})

// A client that sends back what it got is never refused, whatever the model said.
func TestFaithfulReplayIsAccepted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := upstreamtest.New(upstreamtest.Config{
			Thinking: upstreamtest.ThinkingRules{PrefixCheck: rapid.Bool().Draw(t, "prefix check"),
				Omit: rapid.Bool().Draw(t, "omit")},
			Stream: upstreamtest.StreamOptions{Chunk: rapid.IntRange(1, 9).Draw(t, "chunk"),
				Split: rapid.IntRange(0, 9).Draw(t, "split")},
		})
		a := &agent{t: t, v: v, members: opusMembers("")}
		for range rapid.IntRange(1, 6).Draw(t, "answers") {
			if len(a.messages) == 0 || !a.answerCalls() {
				a.ask(rapid.StringMatching(`[a-z]{1,9}`).Draw(t, "question"))
			}
			a.stream = rapid.Bool().Draw(t, "stream")
			said := rapid.SliceOfN(blocks, 0, 6).Draw(t, "blocks")
			v.Queue(upstreamtest.Reply(append(said, upstreamtest.Say("end"))...))
			status, body := a.send()
			require.Equal(t, 200, status, body)
			require.Zero(t, v.Last().Lost)
		}
		a.answerCalls()
		a.ask("and")
		a.tidy()
		status, body := a.try(a.messages)
		require.Equal(t, 200, status, body)
		require.Empty(t, v.Rejections())

		// Without any thinking it is taken, too: that is how clients recover.
		bare := make([]string, len(a.messages))
		for i := range bare {
			bare[i] = without(a.messages[i], thinkingPlaces(a.messages[i])...)
		}
		status, body = a.try(bare)
		require.Equal(t, 200, status, body)
	})
}

// tidy joins the last two messages if a question follows results.
func (a *agent) tidy() {
	n := len(a.messages)
	if n < 2 || gjson.Get(a.messages[n-2], "role").String() != "user" {
		return
	}
	question := fmt.Sprintf(`{"type":"text","text":%s}`, gjson.Get(a.messages[n-1], "content").Raw)
	a.messages = append(a.messages[:n-2], reorder(a.messages[n-2], func(blocks []string) []string {
		return append(blocks, question)
	}))
}

// thinkingPlaces are the indices of the thinking in a message.
func thinkingPlaces(message string) (at []int) {
	for j, b := range gjson.Get(message, "content").Array() {
		if strings.Contains(b.Get("type").String(), "thinking") {
			at = append(at, j)
		}
	}
	return at
}

// without leaves blocks out of a message.
func without(message string, places ...int) string {
	gone := map[int]bool{}
	for _, j := range places {
		gone[j] = true
	}
	return reorder(message, func(blocks []string) (kept []string) {
		for j, b := range blocks {
			if !gone[j] {
				kept = append(kept, b)
			}
		}
		return kept
	})
}

// reorder makes other content of a message's blocks.
func reorder(message string, change func([]string) []string) string {
	content := gjson.Get(message, "content")
	if !content.IsArray() {
		return message
	}
	var blocks []string
	for _, b := range content.Array() {
		blocks = append(blocks, b.Raw)
	}
	return says(gjson.Get(message, "role").String(), `[`+strings.Join(change(blocks), ",")+`]`)
}

// set changes one string inside a message.
func set(message, path, value string) string {
	was := gjson.Get(message, path)
	return message[:was.Index] + fmt.Sprintf("%q", value) + message[was.Index+len(was.Raw):]
}

// conversation is one of nine messages: a question, a loop of two rounds, a
// second question, and a loop that is not over.
//
//	0 ask  1 thinking text use  2 result  3 thinking redacted text thinking use  4 result
//	5 thinking text  6 ask  7 thinking text thinking use  8 result
func conversation(t tester, v *upstreamtest.Server, members string) *agent {
	a := &agent{t: t, v: v, members: members}
	think, say, act := upstreamtest.Think, upstreamtest.Say, upstreamtest.Use("weather", `{"city":"Oslo"}`)
	v.Queue(
		upstreamtest.Reply(think("one"), say("I look."), act),
		upstreamtest.Reply(think("two"), upstreamtest.Redacted(), say("Again."), think("three"), act),
		upstreamtest.Reply(think("four"), say("Done.")),
		upstreamtest.Reply(think("five"), say("Look."), think("six"), act),
	)
	a.ask("first")
	for range 4 {
		status, body := a.send()
		require.Equal(t, 200, status, body)
		if !a.answerCalls() {
			a.ask("second")
		}
	}
	require.Len(t, a.messages, 9)
	return a
}

// What stands before the messages counts for the prefix check, other members do not.
func TestPrefixOutsideOfMessages(t *testing.T) {
	v := upstreamtest.New(upstreamtest.Config{Thinking: upstreamtest.ThinkingRules{PrefixCheck: true}})
	a := conversation(t, v, opusMembers(""))
	want := fmt.Sprintf(invalidAt, "1.content.0") + elsewhere
	for _, c := range []struct{ from, to, betas, want string }{
		{`"You help."`, `"You  help."`, "", want + needsBeta},
		{`"You help."`, `"You  help."`, bindingBeta, want},
		{`"name":"weather"`, `"name":"forecast"`, "", want + needsBeta},
		{`"name":"weather"`, `"description":"new","name":"weather"`, "", want + needsBeta},
		{`"You help."`, `[{"type":"text","text":"You help.","cache_control":{"type":"ephemeral"}}]`, "", ""},
		{`"name":"weather"`, `"cache_control":{"type":"ephemeral"},"name":"weather"`, "", ""},
		{`9000`, `8000,"output_config":{"effort":"low"},"tool_choice":{"type":"none"},"metadata":{"user_id":"u"}`, "", ""},
	} {
		b := *a
		b.members, b.betas = strings.Replace(a.members, c.from, c.to, 1), c.betas
		_, body := b.try(b.messages)
		require.Equal(t, c.want, message(body), c.to)
	}
}

// A request may ask for the prefix check, and for what shall become of blocks
// that do not pass it.
func TestPrefixBehaviour(t *testing.T) {
	v := upstreamtest.New(upstreamtest.Config{})
	a := conversation(t, v, opusMembers(""))
	a.messages[4] = set(a.messages[4], "content.0.content", "edited")
	status, body := a.try(a.messages)
	require.Equal(t, 200, status, body)

	a.betas = bindingBeta
	a.members = strings.Replace(a.members, adaptive,
		`"thinking":{"type":"adaptive","block_binding":{"prefix_mismatch_behavior":"error"}}`, 1)
	_, body = a.try(a.messages)
	require.Equal(t, fmt.Sprintf(invalidAt, "5.content.0")+elsewhere, message(body))

	a.members = strings.Replace(a.members, `"error"`, `"drop_block"`, 1)
	for _, stream := range []bool{false, true} {
		a.stream = stream
		w := post(t, v, "/v1/messages", "{"+a.members+`,"stream":`+fmt.Sprint(stream)+`,"messages":[`+
			strings.Join(a.messages, ",")+`]}`, "Anthropic-Beta", bindingBeta)
		require.Equal(t, 200, w.Code, w.Body)
		require.Contains(t, w.Body.String(),
			`"input_transformations":[{"type":"thinking_dropped","path":"messages.5.content.0","reason":"prefix_mismatch"},`)
		require.Equal(t, []string{"messages.5.content.0", "messages.7.content.0", "messages.7.content.2"}, v.Last().Dropped)
	}
}

// Blocks of another model of the vendor are dropped or refused, those of another
// vendor are always refused.
func TestForeignBlocks(t *testing.T) {
	for _, reject := range []bool{false, true} {
		rules := upstreamtest.ThinkingRules{RejectOtherModels: reject, PrefixCheck: true}
		v := upstreamtest.New(upstreamtest.Config{Name: "a", Thinking: rules})
		a := conversation(t, v, opusMembers(""))
		other := *a
		other.members = strings.Replace(a.members, opus48, "claude-opus-4-7", 1)
		other.betas = bindingBeta
		status, body := other.try(other.messages)
		if reject {
			require.Equal(t, fmt.Sprintf(invalidAt, "1.content.0"), message(body))
		} else {
			require.Equal(t, 200, status, body)
			require.Len(t, v.Last().Dropped, 7)
			require.Equal(t, "model_binding_mismatch", gjson.Get(body, "input_transformations.0.reason").String())
		}
		elsewhere := *a
		elsewhere.v = upstreamtest.New(upstreamtest.Config{Name: "b", Thinking: rules})
		_, body = elsewhere.try(elsewhere.messages)
		require.Equal(t, fmt.Sprintf(invalidAt, "1.content.0"), message(body))
		// Another machine of the same backend takes them, though it remembers nothing.
		elsewhere.v = upstreamtest.New(upstreamtest.Config{Name: "a", Thinking: rules})
		status, body = elsewhere.try(elsewhere.messages)
		require.Equal(t, 200, status, body)
	}
}

// From one model to another and back within a loop of tools, nothing is lost.
func TestModelsTakeTurns(t *testing.T) {
	v := upstreamtest.New(upstreamtest.Config{Thinking: upstreamtest.ThinkingRules{PrefixCheck: true}})
	a := &agent{t: t, v: v, members: opusMembers("")}
	a.ask("go")
	for i := range 6 {
		if i%2 == 1 {
			a.members = strings.Replace(opusMembers(""), opus48, "claude-opus-4-7", 1)
		} else {
			a.members = opusMembers("")
		}
		v.Queue(upstreamtest.Reply(upstreamtest.Think("t"), upstreamtest.Use("weather", "{}")))
		status, body := a.send()
		require.Equal(t, 200, status, body)
		a.answerCalls()
	}
	require.Empty(t, v.Rejections())
	require.Zero(t, v.Last().Lost)
	require.Len(t, v.Last().Dropped, 3)
}

// A client that took thinking out of a loop may go on without it.
func TestLoopGoesOnAfterRecovery(t *testing.T) {
	v := upstreamtest.New(upstreamtest.Config{})
	a := &agent{t: t, v: v, members: opusMembers("")}
	a.ask("go")
	for i := range 4 {
		v.Queue(upstreamtest.Reply(upstreamtest.Think("t"), upstreamtest.Use("weather", "{}")))
		status, body := a.send()
		require.Equal(t, 200, status, body)
		a.answerCalls()
		if i == 1 {
			a.messages[1], a.messages[3] = without(a.messages[1], 0), without(a.messages[3], 0)
		}
	}
	require.Equal(t, 2, v.Last().Lost)
	a.messages[5] = without(a.messages[5], 0)
	_, body := a.try(a.messages)
	require.Equal(t, fmt.Sprintf(modifiedAt, "7.content.0"), message(body))
}

// Machines of one backend do not know each other's answers, and take them.
func TestMachinesTakeTurns(t *testing.T) {
	config := upstreamtest.Config{Name: "one", Thinking: upstreamtest.ThinkingRules{PrefixCheck: true}}
	machines := []*upstreamtest.Server{upstreamtest.New(config), upstreamtest.New(config)}
	a := &agent{t: t, members: opusMembers("")}
	a.ask("go")
	for i := range 5 {
		a.v = machines[i%2]
		a.v.Queue(upstreamtest.Reply(upstreamtest.Think("t"), upstreamtest.Use("weather", "{}")))
		status, body := a.send()
		require.Equal(t, 200, status, body)
		a.answerCalls()
	}
}

// What a server has forgotten it cannot miss; signatures hold without memory.
func TestForgottenAnswers(t *testing.T) {
	v := upstreamtest.New(upstreamtest.Config{Remember: 1})
	a := conversation(t, v, opusMembers(""))
	for range 10 {
		require.Equal(t, 200, post(t, v, "/v1/messages", messages(ask)).Code)
	}
	dropped := without(a.messages[7], 2)
	status, body := a.try(append(a.messages[:7:7], dropped, a.messages[8]))
	require.Equal(t, 200, status, body)
	_, body = a.try(append(a.messages[:7:7], set(a.messages[7], "content.0.thinking", "x"), a.messages[8]))
	require.Equal(t, fmt.Sprintf(invalidAt, "7.content.0"), message(body))
}

func TestOmittedThinking(t *testing.T) {
	v := upstreamtest.New(upstreamtest.Config{Thinking: upstreamtest.ThinkingRules{Omit: true}})
	a := conversation(t, v, opusMembers(""))
	require.Empty(t, gjson.Get(a.messages[1], "content.0.thinking").String())
	require.NotEmpty(t, gjson.Get(a.messages[1], "content.0.signature").String())
	a.messages[1] = set(a.messages[1], "content.0.thinking", "whatever a client puts in")
	status, body := a.try(a.messages)
	require.Equal(t, 200, status, body)

	a.members = strings.Replace(a.members, adaptive, `"thinking":{"type":"adaptive","display":"summarized"}`, 1)
	v.Queue(upstreamtest.Reply(upstreamtest.Think("shown"), upstreamtest.Say("x")))
	_, body = a.send()
	require.Equal(t, "shown", gjson.Get(body, "content.0.thinking").String())
	a.members = strings.Replace(a.members, "summarized", "omitted", 1)
	a.ask("more")
	v.Queue(upstreamtest.Reply(upstreamtest.Think("hidden"), upstreamtest.Say("x")))
	_, body = a.send()
	require.Empty(t, gjson.Get(body, "content.0.thinking").String(), body)
}

// While thinking is off, the model does not think, and blocks of earlier turns are
// verified all the same.
func TestThinkingOff(t *testing.T) {
	v := upstreamtest.New(upstreamtest.Config{})
	a := conversation(t, v, opusMembers(""))
	a.members = strings.Replace(a.members, adaptive, disabled, 1)
	v.Queue(upstreamtest.Reply(upstreamtest.Think("never"), upstreamtest.Redacted(), upstreamtest.Say("x")))
	status, body := a.try(a.messages)
	require.Equal(t, 200, status, body)
	require.Equal(t, `["text"]`, gjson.Get(body, "content.#.type").Raw)
	require.False(t, v.Last().Thinking)
	for _, places := range [][]int{{0, 2}, {2}} {
		status, body = a.try(append(a.messages[:7:7], without(a.messages[7], places...), a.messages[8]))
		require.Equal(t, 200, status, body)
	}
	_, body = a.try(append([]string{a.messages[0], set(a.messages[1], "content.0.thinking", "x")}, a.messages[2:]...))
	require.Equal(t, fmt.Sprintf(invalidAt, "1.content.0"), message(body))
}

// A model in manual mode thinks before its first call only, and a loop that it
// answered is taken back.
func TestManualMode(t *testing.T) {
	v := upstreamtest.New(upstreamtest.Config{})
	a := &agent{t: t, v: v, members: `"model":"` + sonnet45 + `","max_tokens":9000,` + enabled + "," + weather}
	a.ask("use the tool")
	for i, want := range []string{`["thinking","text","tool_use"]`, `["text"]`} {
		status, body := a.send()
		require.Equal(t, 200, status, body)
		require.Equal(t, want, gjson.Get(body, "content.#.type").Raw, i)
		a.answerCalls()
	}
	bare := append([]string{a.messages[0], without(a.messages[1], 0)}, a.messages[2])
	_, body := a.try(bare)
	require.Equal(t, strings.Replace(mustStart, "found `tool_use`", "found `text`", 1), message(body))
}

// A signature looks like a real one: base64 of some length that begins with E.
func TestShapeOfSignatures(t *testing.T) {
	a := conversation(t, upstreamtest.New(upstreamtest.Config{}), opusMembers(""))
	seen := map[string]bool{}
	for _, path := range []string{"1.content.0.signature", "3.content.0.signature", "3.content.1.data",
		"3.content.3.signature"} {
		s := gjson.Get("["+strings.Join(a.messages, ",")+"]", path).String()
		require.Regexp(t, `^E[A-Za-z0-9+/]{300,}={0,2}$`, s)
		require.False(t, seen[s])
		seen[s] = true
	}
}

// Any change of a signature is noticed, and none makes the server stumble.
func TestForgedSignatures(t *testing.T) {
	v := upstreamtest.New(upstreamtest.Config{})
	a := conversation(t, v, opusMembers(""))
	good := gjson.Get(a.messages[1], "content.0.signature").String()
	spare := strings.TrimSuffix(good, "==") // its last character holds bits that mean nothing
	require.Len(t, spare, len(good)-2)
	last := map[byte]string{'A': "B", 'Q': "R", 'g': "h", 'w': "x"}[spare[len(spare)-1]]
	status,
		_ := a.try(append([]string{a.messages[0], set(a.messages[1], "content.0.signature", spare[:len(spare)-1]+last+"==")},
		a.messages[2:]...))
	require.Equal(t, 400, status)
	rapid.Check(t, func(t *rapid.T) {
		bad := []byte(good)
		switch at := rapid.IntRange(0, len(bad)-1).Draw(t, "at"); rapid.IntRange(0, 2).Draw(t, "how") {
		case 0:
			bad[at] = rapid.SampledFrom([]byte("ABCxyz019+/=!")).Draw(t, "byte")
		case 1:
			bad = bad[:at]
		default:
			bad = append(bad[:at:at], append([]byte("QUJD"), bad[at:]...)...)
		}
		if string(bad) == good {
			t.Skip("unchanged")
		}
		forged := set(a.messages[1], "content.0.signature", string(bad))
		b := *a
		b.t = t
		_, body := b.try(append([]string{a.messages[0], forged}, a.messages[2:]...))
		require.Equal(t, fmt.Sprintf(invalidAt, "1.content.0"), message(body))
	})
}

package main

import (
	"bytes"
	"compress/flate"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"mneme/memory"
	"mneme/memory/chatstate"
	"mneme/memory/embedded"
	"mneme/memory/redisstore"
	"mneme/scripts/lab"
)

type stateCmd struct {
	Turns, Rounds int
	Mneme         string
}

func (c *stateCmd) command() *cobra.Command {
	b := &cobra.Command{
		Use: "state", Short: "A chat's turns in Redis as they are stored, beside a prototype that has one state per chat",
		Long: `Two turns, "hi" and one with a delegation to a subagent, of which each history has its question and its ` +
			`answer and the log its events. "the services" are the three of mneme with a vendor that answers at once; the ` +
			`gateway's keys are counted apart. "the store" makes the calls of package redisstore that a turn makes there, ` +
			`and "one state" what it would make with package chatstate and a commit script, with the same messages and ` +
			`events. Commands are those of INFO commandstats, with those that scripts call. CPU is this process's and ` +
			`redis-server's.`,
		RunE: func(*cobra.Command, []string) error { return c.run() },
	}
	f := b.Flags()
	f.IntVar(&c.Turns, "turns", 500, "Turns of each way in one round")
	f.IntVar(&c.Rounds, "rounds", 5, "How often the ways are measured, one after the other")
	f.StringVar(&c.Mneme, "mneme", "", "A built mneme, a `FILE`; without it one is built from ./cmd/mneme")
	return b
}

// bed is a store that is measured.
type bed struct {
	name   string
	client *redis.Client
	pids   []int
	info   bool // it has INFO commandstats, an AOF and MEMORY USAGE
}

// turner makes turns of a chat; delegates says of which kind.
type turner struct {
	name string
	turn func(chat string, n int, delegates bool)
}

func (c *stateCmd) run() error {
	l := lab.New(c.Mneme)
	defer l.Stop()
	fmt.Printf("%-10s %-14s %-10s %9s %9s %9s %9s %9s %9s\n", "over", "way", "turn", "commands", "gateway", "AOF B",
		"CPU µs", "at rest", "15 min")
	c.services(l)
	_, client := l.Redis()
	server := bed{name: "Redis", client: client, pids: lab.Children(syscall.Getpid()), info: true}
	store := lab.Must(embedded.Open(bg, embedded.Options{Dir: filepath.Join(l.Dir, "embedded"), Log: zerolog.Nop()}))
	defer store.Close()
	inside := redis.NewClient(&redis.Options{Addr: "embedded", Dialer: store.Dial})
	defer inside.Close()
	for _, b := range []bed{server, {name: "embedded", client: inside}} {
		c.beside(b)
	}
	return nil
}

// services measures turns of the three services.
func (c *stateCmd) services(l *lab.Lab) {
	mark := l.Mark()
	v, direct := lab.NewVendor(nil), false
	defer v.Close()
	inner := v.Config.Handler
	v.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if direct {
			r.Header.Set(lab.AnswerHeader, "2")
		}
		inner.ServeHTTP(w, r)
	})
	s := l.Services(v, true)
	b := bed{name: "Redis", client: s.Redis, info: true}
	for _, delegates := range []bool{false, true} {
		direct = !delegates
		turn := func(chat string, _ int, _ bool) {
			lab.Must(0, ask(s.URL, chat, "hi"))
			time.Sleep(50 * time.Millisecond)
		}
		for i := range 20 {
			turn(fmt.Sprintf("warm-%v-%d", delegates, i), 0, delegates)
		}
		c.row(b, turner{"the services", turn}, delegates, 0)
	}
	l.StopTo(mark)
}

// beside measures today's store and the prototype over one bed, round after round.
func (c *stateCmd) beside(b bed) {
	store := &today{redisstore.New(b.client, zerolog.Nop()), map[memory.Key]*memory.History{}}
	ways := []turner{{"the store", store.turn},
		{"one state", (&proto{redis: b.client, cache: map[string]*cached{}}).turn}}
	for _, delegates := range []bool{false, true} {
		cpu := make([][]float64, len(ways))
		for round := range c.Rounds + 1 {
			for i, w := range ways {
				before := b.cpu()
				for n := range c.Turns {
					w.turn(fmt.Sprintf("%s-%v-%d-%d", strings.ReplaceAll(w.name, " ", "-"), delegates, round, n/4), n%4, delegates)
				}
				if round > 0 {
					cpu[i] = append(cpu[i], float64((b.cpu()-before).Microseconds())/float64(c.Turns))
				}
			}
		}
		for i, w := range ways {
			c.row(b, w, delegates, quantile(cpu[i], .5))
		}
		fmt.Printf("%-10s one state ÷ the store, CPU: %.2f\n", b.name, quantile(cpu[1], .5)/quantile(cpu[0], .5))
	}
}

// cpu is what the store and this process have used.
func (b bed) cpu() time.Duration {
	var own syscall.Rusage
	lab.Must(0, syscall.Getrusage(syscall.RUSAGE_SELF, &own))
	return time.Duration(own.Utime.Nano()+own.Stime.Nano()) + lab.CPU(b.pids...)
}

// row measures commands, AOF and bytes of one way: the second to fourth turn of chats.
func (c *stateCmd) row(b bed, w turner, delegates bool, cpu float64) {
	kind := map[bool]string{false: "hi", true: "delegates"}[delegates]
	line := func(commands, gateway, aof, rest, kept any) {
		fmt.Printf("%-10s %-14s %-10s %9v %9v %9v %9.0f %9v %9v\n", b.name, w.name, kind, commands, gateway, aof,
			cpu, rest, kept)
	}
	if !b.info {
		line("", "", "", "", "")
		return
	}
	const chats = 20
	name := func(i int) string { return fmt.Sprintf("%s.%v.%d", strings.ReplaceAll(w.name, " ", "-"), delegates, i) }
	var before int64
	for i := range 4 * chats {
		if i == chats {
			before = b.commands()
		}
		w.turn(name(i%chats), i/chats, delegates)
	}
	commands := fmt.Sprintf("%.0f", float64(b.commands()-before)/(3*chats))
	gateway := b.gateway(w, name(0), delegates)
	rest, kept := b.bytes(name(0))
	lab.Must(0, b.client.ConfigSet(bg, "appendonly", "yes").Err())
	began := b.aof()
	for i := range chats {
		w.turn(name(i), 4, delegates)
	}
	aof := float64(b.aof()-began) / chats
	lab.Must(0, b.client.ConfigSet(bg, "appendonly", "no").Err())
	line(commands, gateway, fmt.Sprintf("%.0f", aof), rest, kept)
}

// commands is how many ran, scripts' ones too.
func (b bed) commands() (n int64) {
	for line := range strings.Lines(lab.Must(b.client.Info(bg, "commandstats").Result())) {
		name, of, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		if ok && !slices.Contains(notATurns, name) {
			calls, _, _ := strings.Cut(of, ",")
			n += lab.Must(strconv.ParseInt(calls, 10, 64))
		}
	}
	return n
}

// notATurns are commands by which this is measured or processes stay in touch.
var notATurns = []string{"info", "memory|usage", "scan", "monitor", "echo", "hello", "client|setinfo", "config|set",
	"ping",
	"config|get", "script|load", "command"}

// gateway is how many commands of one more turn are of the gateway's keys, by MONITOR.
func (b bed) gateway(w turner, chat string, delegates bool) (n int) {
	s := lab.Services{Redis: b.client}
	lines := s.Lines(func() { w.turn(chat, 4, delegates) })
	of := false
	for _, line := range lines {
		source, rest, _ := strings.Cut(line, "] \"")
		if !strings.HasSuffix(source, " lua") { // what follows from scripts is of the same keys
			of = strings.Contains(rest, "\"proxy:") || strings.Contains(rest, "\"mneme:usage")
		}
		if of {
			n++
		}
	}
	return n
}

// bytes is what the keys of a chat take, without those that end within the day, and with them.
func (b bed) bytes(chat string) (rest, kept int64) {
	it := b.client.Scan(bg, 0, "*", 1000).Iterator()
	for it.Next(bg) {
		if !strings.Contains(it.Val()+":", ":"+chat+":") && !strings.Contains(it.Val(), ":"+chat+"}") {
			continue
		}
		size := lab.Must(b.client.MemoryUsage(bg, it.Val(), 0).Result())
		if kept += size; b.client.PTTL(bg, it.Val()).Val() < 0 {
			rest += size
		}
	}
	return rest, kept
}

func (b bed) aof() int64 {
	for {
		info := lab.Must(b.client.InfoMap(bg, "persistence").Result())["Persistence"]
		if info["aof_rewrite_in_progress"] == "0" && info["aof_enabled"] == "1" && info["aof_rewrite_scheduled"] == "0" {
			return lab.Must(strconv.ParseInt(info["aof_current_size"], 10, 64))
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// script is a turn's events and messages: the same bytes for both ways.
type script struct {
	run    string
	events []redisstore.Logged
	steps  []step
}

// step is a batch of events, with the message that it adds.
type step struct {
	events []redisstore.Logged
	agent  string // whose history the message is for
	m      []byte
	seq    int64
}

var text = strings.Repeat("June, as in 2024, is", 10)

func scriptOf(chat string, delegates bool) *script {
	s := &script{run: fmt.Sprintf("%026s", strings.ToUpper(strconv.FormatInt(time.Now().UnixNano(), 36)))}
	say := func(agent, role, content string, events int) {
		var of step
		for i := range max(events, 1) {
			seq := int64(len(s.events)) + 1
			l := fmt.Sprintf(`{"role":"assistant_delta","run_id":%q,"seq":%d,"ts":1795725331.73%d,"text":"June, as in 20"}`,
				s.run, seq, i)
			if i == max(events, 1)-1 && role != "" {
				l = fmt.Sprintf(`{"role":%q,"run_id":%q,"seq":%d,"ts":1795725331.73,"chat_id":%q,"content":%q}`,
					role, s.run, seq, chat, content)
				of.agent, of.seq = agent, seq
				of.m = memory.WithID(memory.Message{Role: role, Content: content, Timestamp: 1795725331.73}.Encode(),
					memory.MessageID(s.run, seq))
			}
			of.events = append(of.events, redisstore.Logged{Seq: seq, Line: []byte(l)})
			s.events = append(s.events, of.events[i])
		}
		s.steps = append(s.steps, of)
	}
	say("", "user", "hi", 1)
	if delegates {
		say("analytic", "user", "Which month sold the most?", 1)
		say("", "", "", 10)
		say("analytic", "assistant", text, 1)
		say("", "", "", 2)
		say("", "", "", 1)
	}
	say("", "", "", 10)
	say("", "assistant", text, 1)
	say("", "", "", 1) // run_finished
	return s
}

// today makes the calls that a turn makes.
type today struct {
	store  *redisstore.Store
	copies map[memory.Key]*memory.History
}

func (t *today) turn(id string, n int, delegates bool) {
	chat, s := memory.MustChat(id), scriptOf(id, delegates)
	token := "vm-21772-ab76dhrtcfsv:" + s.run
	turn := lab.Must(t.store.Turns.Take(bg, chat, token, s.run, 15*time.Second))
	keys := []memory.Key{memory.ChatKey(chat)}
	for _, a := range turn.Agents {
		keys = append(keys, memory.SubagentKey(a, chat))
	}
	lab.Must(t.store.Chats.Found(bg, memory.SubagentKey("knowledge", chat)))
	var have []*memory.History
	for _, k := range keys {
		if t.copies[k] == nil {
			t.copies[k] = memory.Empty(k)
		}
		have = append(have, t.copies[k])
	}
	for i, h := range lab.Must(t.store.Load(bg, turn.Number, have...)) {
		t.copies[keys[i]] = h
	}
	lab.Must(t.store.Runs.BeginUnkeyed(bg, chat, s.run, strings.Repeat("b", 64)))
	lab.Must(t.store.Turns.Open(bg, chat, token, 15*time.Second, redisstore.OpenRun{Run: s.run, Turn: turn.Number,
		Events: "http://127.0.0.1:15459/v1/runs/" + s.run + "/events", Body: strings.Repeat("b", 64),
		By: "vm-21772-ab76dhrtcfsv", Unkeyed: true, Posted: true, Begins: "hi"}))
	for i, st := range s.steps {
		lab.Must(t.store.Runs.Log(bg, chat, s.run, i == 0, st.events...))
		if st.m == nil {
			continue
		}
		key := memory.ChatKey(chat)
		if st.agent != "" {
			key = memory.SubagentKey(memory.Agent(st.agent), chat)
		}
		if t.copies[key] == nil {
			t.copies[key] = memory.Empty(key)
		}
		mark := memory.Mark{Run: s.run, Seq: st.seq, Turn: turn.Number}
		t.copies[key] = lab.Must(t.store.Append(bg, t.copies[key], mark, st.m))
	}
	_, _, err := t.store.Turns.RenewLast(bg, chat, token, 15*time.Second, s.run)
	lab.Must(0, err)
	lab.Must(0, t.store.Runs.Finish(bg, chat, s.run, []byte(`{"status":200,"body":{}}`)))
	lab.Must(0, t.store.Turns.Close(bg, chat, token, s.run, s.run, false))
	lab.Must(0, t.store.Runs.Pack(bg, chat, s.run, s.events...))
}

// The prototype's scripts. Each checks all before its first write; after that no command can fail.
var (
	// KEYS lease, claim, state, array; ARGV token, ms, head before ("" for none), state after, last byte of the array
	takeState = redis.NewScript(`
local first = redis.call('GET', KEYS[2])
if first and first ~= ARGV[1] then return {'claimed', first} end
if ARGV[5] ~= '' and redis.call('GETRANGE', KEYS[4], ARGV[5], -1) ~= ']' then return {'foreign'} end
local there = redis.call('GETRANGE', KEYS[3], 0, math.max(#ARGV[3] - 1, 0))
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  local owner = redis.call('GET', KEYS[1])
  if owner ~= ARGV[1] then return {'held', owner} end
end
if there ~= ARGV[3] then return {'state', redis.call('GET', KEYS[3])} end
redis.call('SET', KEYS[3], ARGV[4])
return {'ok'}`)
	// KEYS state, array, lease; ARGV head before, state after, last byte of the array ("" for no append, "-" for an
	// absent one), bytes, 1 to give the lease back
	commitState = redis.NewScript(`
if redis.call('GETRANGE', KEYS[1], 0, #ARGV[1] - 1) ~= ARGV[1] then
  local there = redis.call('GET', KEYS[1])
  if not there then return {'lost'} end
  if there == ARGV[2] then return {'ok'} end
  return {'moved', there}
end
if ARGV[3] == '-' then
  if redis.call('STRLEN', KEYS[2]) ~= 0 then return {'foreign'} end
elseif ARGV[3] ~= '' and redis.call('GETRANGE', KEYS[2], ARGV[3], -1) ~= ']' then
  return {'foreign'}
end
if ARGV[3] ~= '' then redis.call('SETRANGE', KEYS[2], ARGV[3] == '-' and 0 or ARGV[3], ARGV[4]) end
redis.call('SET', KEYS[1], ARGV[2])
if ARGV[5] == '1' then redis.call('DEL', KEYS[3]) end
return {'ok'}`)
	// KEYS array, meta; ARGV turn, last byte of the array or "-", bytes, sum, len, sum with it, len with it, mark
	splice = redis.NewScript(`
local meta = redis.call('HMGET', KEYS[2], 'turn', 'sum', 'len', 'marks')
if meta[1] and tonumber(meta[1]) > tonumber(ARGV[1]) then return {'moved'} end
if (meta[2] or '') ~= ARGV[4] then return {meta[4] == ARGV[8] and 'ok' or 'stale'} end
local at, last = ARGV[2], ']'
if at == '-' then at, last = 0, '' end
if redis.call('GETRANGE', KEYS[1], at, -1) ~= last then return {'foreign'} end
redis.call('SETRANGE', KEYS[1], at, ARGV[3])
redis.call('HSET', KEYS[2], 'turn', ARGV[1], 'sum', ARGV[6], 'len', ARGV[7], 'marks', ARGV[8])
return {'ok'}`)
	// KEYS array, meta; ARGV turn, last byte of the array
	raise = redis.NewScript(`
local meta = redis.call('HMGET', KEYS[2], 'turn', 'sum')
if meta[1] and tonumber(meta[1]) > tonumber(ARGV[1]) then return {'moved'} end
redis.call('HSET', KEYS[2], 'turn', ARGV[1])
return {redis.call('GETRANGE', KEYS[1], ARGV[2], -1) == ']' and 'same' or 'changed', meta[2]}`)
	// KEYS log; ARGV id of its last entry, the whole, ms
	packLog = redis.NewScript(`
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
if #last == 0 or last[1][1] ~= ARGV[1] then return {'changed'} end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return {'ok'}`)
)

// proto is the prototype.
type proto struct {
	redis *redis.Client
	cache map[string]*cached
}

type cached struct {
	state  chatstate.State
	copies map[string]*memory.History
}

// ok sends commands in one round trip, of which each must succeed, and scripts answer ok.
func (p *proto) ok(do func(redis.Pipeliner)) {
	for _, cmd := range lab.Must(p.redis.Pipelined(bg, func(pipe redis.Pipeliner) error { do(pipe); return nil })) {
		if r, is := cmd.(*redis.Cmd); is {
			if word := r.Val().([]any)[0]; word != "ok" && word != "same" {
				panic(fmt.Errorf("the prototype was answered %v", r.Val()))
			}
		}
	}
}

// apply makes transitions one after the other; they go together.
func apply(s chatstate.State, acts ...chatstate.Act) chatstate.State {
	for _, a := range acts {
		after, _, err := chatstate.Apply(s, a)
		s = lab.Must(after, err)
	}
	return s
}

func (p *proto) turn(id string, n int, delegates bool) {
	s, own := scriptOf(id, delegates), "chat_history:"+id
	if n == 0 {
		for _, script := range []*redis.Script{takeState, commitState, splice, raise, packLog} {
			lab.Must(0, script.Load(bg, p.redis).Err())
		}
		p.cache[id] = &cached{copies: map[string]*memory.History{"": memory.Empty(memory.ChatKey(memory.MustChat(id)))}}
	}
	c, keys := p.cache[id], []string{"{" + own + "}:turn", "{" + own + "}:first", "{" + own + "}:state", own}
	token, events, now := "vm-21772-ab76dhrtcfsv:"+s.run, "events:"+id+":"+s.run, time.Now().UnixMilli()
	before := ""
	if c.state.Turn > 0 {
		before = chatstate.Head(c.state.Mark())
	}
	// The first commit: it takes the lease and begins the run, if the state is still what this process knows.
	acts := []chatstate.Act{chatstate.Take{By: s.run[18:], Above: now}}
	if n == 0 {
		acts = append(acts, chatstate.Converse{ID: s.run})
	}
	c.state = apply(c.state, append(acts, chatstate.Post{Run: chatstate.Run{ID: s.run, Post: strings.Repeat("b", 43),
		Process: "vm-21772-ab76dhrtcfsv", Events: "http://127.0.0.1:15459/v1/runs/" + s.run + "/events"},
		Body: `{"message":"hi"}`})...)
	p.ok(func(pipe redis.Pipeliner) {
		pipe.ZAdd(bg, "turns:open", redis.Z{Score: float64(now + 15000), Member: id})
		pipe.ZAdd(bg, "mneme:chats", redis.Z{Score: float64(now), Member: id})
		pipe.Exists(bg, "subagent:knowledge:"+id, "{subagent:knowledge:"+id+"}:meta")
		takeState.EvalSha(bg, pipe, keys, token, 15000, before, c.state.Encode(), lastByte(c.copies[""], ""))
	})
	p.raiseAll(id, c)
	for i, st := range s.steps {
		acts = nil
		if i == 0 {
			acts = append(acts, chatstate.Accept{Run: s.run, Events: c.state.Run.Events, Process: c.state.Run.Process})
		}
		if last := i == len(s.steps)-1; last {
			acts = append(acts, chatstate.Finish{Run: s.run, Outcome: "completed"})
		}
		p.step(id, c, st, i == 0, events, acts)
	}
	p.ok(func(pipe redis.Pipeliner) {
		pipe.ZRem(bg, "turns:open", id)
		packLog.EvalSha(bg, pipe, []string{events}, fmt.Sprintf("%d-0", len(s.events)), deflated(s.events), 900_000)
	})
}

// raiseAll raises the fencing token of the subagents' histories.
func (p *proto) raiseAll(id string, c *cached) {
	if len(c.state.Histories) == 0 {
		return
	}
	p.ok(func(pipe redis.Pipeliner) {
		for _, h := range c.state.Histories {
			array := "subagent:" + h.Agent + ":" + id
			raise.EvalSha(bg, pipe, []string{array, "{" + array + "}:meta"}, c.state.Turn, lastByte(c.copies[h.Agent], "-"))
		}
	})
}

// step logs events and stores what they add, by a commit where there is something to commit, and then a splice.
func (p *proto) step(id string, c *cached, st step, first bool, events string, acts []chatstate.Act) {
	own, spliced, before := "chat_history:"+id, st.m != nil && st.agent == "", chatstate.Head(c.state.Mark())
	at, message := "", []byte{}
	if spliced {
		at, message = lastByte(c.copies[""], "-"), bytesOf(c.copies[""], st.m)
		h := c.copies[""].With(st.m)
		c.copies[""] = h
		array := chatstate.Array{Len: int64(h.Size()), Count: int64(h.Len()), Sum: h.Sum().String()}
		acts = append(acts, chatstate.Append{Array: array})
	} else if st.m != nil && c.copies[st.agent] == nil {
		c.copies[st.agent] = memory.Empty(memory.SubagentKey(memory.Agent(st.agent), memory.MustChat(id)))
		acts = append(acts, chatstate.Use{Agent: st.agent})
	}
	c.state = apply(c.state, acts...)
	p.ok(func(pipe redis.Pipeliner) {
		pipe.XAdd(bg, joinedEvents(events, st.events))
		if first {
			pipe.Expire(bg, events, 2760*time.Second)
		}
		if len(acts) > 0 {
			release := 0
			if c.state.Run.Phase == chatstate.Over {
				release = 1
			}
			commitState.EvalSha(bg, pipe, []string{"{" + own + "}:state", own, "{" + own + "}:turn"}, before, c.state.Encode(),
				at, message, release)
		}
	})
	if st.m == nil || spliced {
		return
	}
	h, array := c.copies[st.agent], "subagent:"+st.agent+":"+id
	grown, sum := h.With(st.m), ""
	if h.Len() > 0 {
		sum = h.Sum().String()
	}
	p.ok(func(pipe redis.Pipeliner) {
		splice.EvalSha(bg, pipe, []string{array, "{" + array + "}:meta"}, c.state.Turn, lastByte(h, "-"), bytesOf(h, st.m),
			sum, h.Size(), grown.Sum().String(), grown.Size(), fmt.Sprintf("%s=%d", c.state.Run.ID, st.seq))
	})
	c.copies[st.agent] = grown
}

// lastByte is where the closing bracket of an array is, or what stands for an absent one.
func lastByte(h *memory.History, absent string) string {
	if h == nil || h.Len() == 0 {
		return absent
	}
	return strconv.Itoa(h.Size() - 1)
}

func bytesOf(h *memory.History, m []byte) []byte {
	if h.Len() == 0 {
		return slices.Concat([]byte("["), m, []byte("]"))
	}
	return slices.Concat([]byte(","), m, []byte("]"))
}

func joinedEvents(key string, events []redisstore.Logged) *redis.XAddArgs {
	last := events[len(events)-1]
	values := []any{"e", last.Line}
	if len(events) > 1 {
		var lines []byte
		for _, e := range events[:len(events)-1] {
			lines = append(append(lines, e.Line...), '\n')
		}
		values = append(values, "b", lines)
	}
	return &redis.XAddArgs{Stream: key, ID: fmt.Sprintf("%d-0", last.Seq), Values: values}
}

var deflater = lab.Must(flate.NewWriter(io.Discard, 4))

func deflated(events []redisstore.Logged) []byte {
	var out bytes.Buffer
	deflater.Reset(&out)
	for _, e := range events {
		_, _ = deflater.Write(append(e.Line, '\n'))
	}
	_ = deflater.Close()
	return out.Bytes()
}

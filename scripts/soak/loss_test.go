package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/memory"
)

// lived is a service with lives and pauses, in seconds; an end of 0 is none.
func lived(name string, lives, pauses [][2]float64) *service {
	v := &service{name: name}
	for into, list := range map[*[]*span][][2]float64{&v.lives: lives, &v.pauses: pauses} {
		for _, x := range list {
			s := &span{start: second(x[0])}
			if x[1] > 0 {
				s.end = second(x[1])
			}
			*into = append(*into, s)
		}
	}
	return v
}

func TestWhatRedisLossesMayCost(t *testing.T) {
	flush := outage{start: second(100), recovered: second(100)}
	lag := outage{durableUntil: second(95), start: second(100), recovered: second(103)}
	always := [][2]float64{{1, 0}}
	for name, test := range map[string]struct {
		a, b   *service
		loss   outage
		at     float64 // begin of the run, on webmemory-a
		others []float64
		edited float64
		gone   bool
	}{
		"its process lives": {lived(webA, always, nil), lived(webB, always, nil), flush, 90, nil, 0,
			false},
		"its process had ended": {lived(webA, [][2]float64{{1, 95}, {96, 0}}, nil),
			lived(webB, always, nil), flush, 90, nil, 0, true},
		"its process ended with it": {lived(webA, [][2]float64{{1, 104}, {105, 0}}, nil),
			lived(webB, always, nil), flush, 90, nil, 0, true},
		"its process ended later": {lived(webA, [][2]float64{{1, 140}, {141, 0}}, nil),
			lived(webB, always, nil), flush, 90, nil, 0, false},
		"another one had loaded it": {lived(webA, [][2]float64{{1, 95}, {96, 0}}, nil),
			lived(webB, always, nil), flush, 90, []float64{94}, 0, false},
		"another one had loaded the chat before": {lived(webA, [][2]float64{{1, 95}, {96, 0}}, nil),
			lived(webB, always, nil), flush, 90, []float64{80}, 0, true},
		"another one loaded it too late": {lived(webA, [][2]float64{{1, 95}, {96, 0}}, nil),
			lived(webB, always, nil), flush, 90, []float64{105}, 0, true},
		"its process slept and ended on waking": {lived(webA, [][2]float64{{1, 125}, {126, 0}}, [][2]float64{{99, 120}}),
			lived(webB, always, nil), flush, 90, nil, 0, true},
		"its process slept and lives": {lived(webA, always, [][2]float64{{99, 120}}), lived(webB, always, nil),
			flush, 90, nil, 0, false},
		"said after the loss": {lived(webA, [][2]float64{{1, 112}, {113, 0}}, nil),
			lived(webB, always, nil), flush, 110, nil, 0, false},
		"said before the window": {lived(webA, [][2]float64{{1, 91}, {92, 0}}, nil),
			lived(webB, always, nil), lag, 90, nil, 0, false},
		"said in the window": {lived(webA, [][2]float64{{1, 99}, {104, 0}}, nil),
			lived(webB, always, nil), lag, 97, nil, 0, true},
		"edited since, and loaded by nobody since": {lived(webA, always, nil), lived(webB, always, nil), flush, 90, nil, 92,
			true},
		"edited since, and loaded since": {lived(webA, always, nil), lived(webB, always, nil), flush, 90, []float64{
			94,
		}, 92, false},
		"lost, and the rest edited": {lived(webA, [][2]float64{{1, 95}, {96, 0}}, nil),
			lived(webB, always, nil), flush, 90, nil, 120, true},
		"there, and then edited": {lived(webA, always, nil), lived(webB, always, nil), flush, 90, nil, 120,
			false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(chatKey)
			s.hear("a", test.at)
			s.posts[0].attempts = []attempt{{web: webA, start: second(test.at - 1)}, {web: webB, start: second(test.at + 1)}}
			stack := &testbed{services: map[string]*service{webA: test.a, webB: test.b}}
			f := &fates{stack: stack, outages: []outage{test.loss}, loads: map[*chat][]load{}}
			for _, at := range test.others {
				f.loads[s.chat] = append(f.loads[s.chat], load{second(at), []holder{{test.b, test.b.life(second(at), second(at))}}})
			}
			if test.edited > 0 {
				s.chat.edits = []edit{{key: chatKey, time: second(test.edited)}}
			}
			why := f.lossReason(s.chat, chatKey, s.runs["a"], second(test.at))
			require.Equal(t, test.gone, why != "", why)
			s.fates = f
			found := s.kinds(t) // nothing is stored
			require.Equal(t, test.gone, len(found) == 0, "%v", found)
		})
	}
}

func TestWhatWasEditedByHandStaysSo(t *testing.T) {
	for name, test := range map[string]struct {
		sure bool
		now  string // of the answer; "" removes
		back bool   // the answer as it was is there
		want []kind
	}{
		"rewritten": {true, `{"role":"assistant","content":"edited","timestamp":10.05,"id":"a.6"}`,
			false, nil},
		"rewritten, and put back": {true, `{"role":"assistant","content":"edited","timestamp":10.05,"id":"a.6"}`,
			true, []kind{revived, missing}},
		"rewritten while Redis lost data": {false, `{"role":"assistant","content":"edited","timestamp":10.05,"id":"a.6"}`,
			true, nil},
		"removed":               {true, "", false, nil},
		"removed, and put back": {true, "", true, []kind{revived}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(chatKey)
			m := s.hear("a", 10)
			s.chat.edits = []edit{
				{key: chatKey, time: second(20), sure: test.sure, rewrites: map[string]string{string(m[1].Encode()): test.now}},
			}
			s.history = s.history.With(m[0].Encode())
			switch {
			case test.back:
				s.history = s.history.With(m[1].Encode())
			case test.now != "":
				s.history = s.history.With([]byte(test.now))
			}
			found := s.kinds(t)
			require.Equal(t, len(test.want) == 0, len(found) == 0, "%v", found)
			for _, k := range test.want {
				if k != missing { // with ids it is known as the same message
					require.Contains(t, found, k)
				}
			}
		})
	}
}

// An edit that Redis lost with all that had loaded it may be gone, and what it took
// away may be back.
func TestAnEditMayBeLost(t *testing.T) {
	flush := outage{start: second(100), recovered: second(100)}
	edited := `{"role":"assistant","content":"edited","timestamp":10.05,"id":"a.6"}`
	for name, test := range map[string]struct {
		now  string
		ends float64 // of the process that took the edit over; 0 for never
		gone bool
	}{
		"removed, by one that lives":       {"", 0, false},
		"removed, by one that ended":       {"", 99, true},
		"removed, by one that ended later": {"", 130, false},
		"rewritten, by one that lives":     {edited, 0, false},
		"rewritten, by one that ended":     {edited, 99, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(chatKey)
			m := s.hear("a", 10)
			s.store(m...)
			s.chat.edits = []edit{
				{key: chatKey, time: second(20), sure: true, rewrites: map[string]string{string(m[1].Encode()): test.now}},
			}
			b := lived(webB, [][2]float64{{1, test.ends}}, nil)
			stack := &testbed{services: map[string]*service{webA: lived(webA, [][2]float64{{1, 15}, {16, 0}}, nil), webB: b}}
			s.fates = &fates{stack: stack, outages: []outage{flush},
				loads: map[*chat][]load{s.chat: {{second(21), []holder{{b, b.lives[0]}}}}}}
			found := s.kinds(t)
			require.Equal(t, test.gone, len(found) == 0, "%v", found)
		})
	}
}

func TestWhatMayVanish(t *testing.T) {
	flush := outage{start: second(100), recovered: second(100)}
	for name, test := range map[string]struct {
		erased, edited, touched float64
		ends                    float64 // of all processes; 0 for never
		want                    bool    // a finding
	}{
		"nothing was done to it":                {0, 0, 0, 99, true},
		"erased":                                {50, 0, 0, 0, false},
		"edited by hand":                        {0, 0, 50, 0, false},
		"edited by hand afterwards":             {0, 0, 160, 0, true},
		"before an edit, and lost":              {0, 50, 0, 99, false},
		"before an edit, and not lost":          {0, 50, 0, 0, true},
		"before an edit that was made too late": {0, 160, 0, 99, true},
		"behind an edit":                        {0, 5, 0, 99, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(chatKey)
			m := s.hear("a", 10)[0].Encode()
			s.posts[0].attempts = []attempt{{web: webA, start: second(9)}}
			if test.erased > 0 {
				at := second(test.erased)
				s.chat.erasures = []erasure{{first: at, last: at, ack: at}}
			}
			if test.edited > 0 {
				s.chat.edits = append(s.chat.edits, edit{key: chatKey, time: second(test.edited), sure: true})
			}
			if test.touched > 0 {
				s.chat.edits = append(s.chat.edits, edit{key: chatKey, time: second(test.touched), rewrites: map[string]string{
					string(m): "",
				}})
			}
			stack := &testbed{services: map[string]*service{webA: lived(webA, [][2]float64{{1, test.ends}}, nil),
				webB: lived(webB, [][2]float64{{1, test.ends}}, nil)}}
			f := &fates{stack: stack, outages: []outage{flush}, loads: map[*chat][]load{}}
			for _, at := range []float64{10, 51} {
				v := stack.services[webA]
				f.loads[s.chat] = append(f.loads[s.chat], load{second(at), []holder{{v, v.lives[0]}}})
			}
			check := &checker{ledger: s.ledger, fates: f}
			check.vanished([]vanished{{s.chat, chatKey, m, second(150), second(151)}})
			require.Equal(t, test.want, len(s.ledger.violations) == 1, "%v", check.excuses)
		})
	}
}

func TestHistoriesAfterALoss(t *testing.T) {
	m := func(ids ...string) []byte {
		h := memory.Empty(chatKey)
		for _, id := range ids {
			h = h.With(memory.Message{Role: memory.RoleUser, Content: id, ID: id + ".1"}.Encode())
		}
		return h.JSON()
	}
	for _, test := range []struct {
		before, after []byte
		gone          int
		want          bool
	}{
		{m("a", "b"), m("a", "b", "c"), 0, true}, {m("a", "b"), m("a", "c", "b"), 0, true},
		{m("a", "b"), m("b", "a"), 0, false}, {m("a", "b", "c"), m("a", "d"), 2, true}, {m("a"), nil, 1, true},
	} {
		gone, ok := compareHistory(test.before, test.after, true)
		require.Equal(t, test.want, ok, "%s %s", test.before, test.after)
		if ok {
			require.Len(t, gone, test.gone)
		}
	}
}

func TestAnEditTouchesOneExchange(t *testing.T) {
	s := newScene(agentKey)
	s.store(s.hear("a", 10)...)
	s.store(s.hear("b", 20)...)
	rng := options{seed: 1}.random(1)
	for range 30 {
		e := edit{key: agentKey}
		require.True(t, e.change(rng, s.history))
		require.Contains(t, []int{1, 4}, len(e.rewrites), "the answer is rewritten, or all goes")
		for old, now := range e.rewrites {
			if now != "" {
				m, err := memory.Decode(append(memory.Empty(agentKey).With([]byte(now)).Raw(0), []byte(old)))
				require.NoError(t, err)
				require.Equal(t, m[1].ID, m[0].ID)
				require.Equal(t, "edited by hand: "+m[1].Content, m[0].Content)
			}
		}
	}
}

func TestWordsAreFound(t *testing.T) {
	const text = "c001n00001k001c002n00002k002, xc003n00003k003 c004n0004k004 c005n00005k05"
	require.Equal(t, []string{"c001n00001k001", "c002n00002k002", "c003n00003k003"}, wordPattern.FindAllString(text, -1))
}

func TestAnOlderLog(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "appendonlydir", "appendonly.aof.1.incr.aof")
	require.NoError(t, os.MkdirAll(filepath.Dir(log), 0o700))
	require.NoError(t, os.WriteFile(log, []byte("older"), 0o600))
	sizes, err := filesOf(dir)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(log, []byte("older and newer"), 0o600))
	require.NoError(t, cutBack(dir, sizes))
	raw, err := os.ReadFile(log)
	require.NoError(t, err)
	require.Equal(t, "older", string(raw))
	require.NoError(t, cutBack(dir, nil))
	require.NoDirExists(t, filepath.Dir(log))
}

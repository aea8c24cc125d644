package proxy_test

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/access"
	"mneme/access/limit"
	"mneme/access/tally"
	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/internal/upstreamtest"
	"mneme/proxy"
	"mneme/proxy/thinking"
	"mneme/proxy/wire"
)

// The vendors of the routes under faults, each as agents know it. All of them keep prompts.
var (
	cachingClaude = claude.with("claude", func(c *upstreamtest.Config) { c.Thinking.KeepAll = true })
	cachingGPT    = gpt.told(mapsAll("gpt-5.1"))
	gptChat       = backendCase{name: "gpt-chat", vendor: upstreamtest.Config{Vendor: upstreamtest.OpenAI},
		config: proxy.BackendConfig{Kind: proxy.KindOpenAI, Vendor: "openai"}}.told(mapsAll("gpt-5.1"))
	gemini = chatVendor("gemini", "gemini", upstreamtest.ChatRules{ThoughtSignatures: true}).told(mapsAll("gemini-3-pro"))
)

func mapsAll(model string) func(*proxy.BackendConfig) {
	return func(c *proxy.BackendConfig) { c.ModelMap = map[string]string{"*": model} }
}

// Faults of calls. Of those in alone one is enough to leave a backend: a key that is refused stays so, and what took
// all of its time would take it again.
const (
	faultCut     = "cut stream"
	faultHang    = "hang"
	faultRevoked = "revoked key"
)

var (
	faultKinds = []string{"429", "429 with Retry-After", "429 with Retry-After of 1 s", "500", "529", faultHang, "reset",
		faultCut, "error as first event"}
	alone = []string{faultHang, faultRevoked}
)

// cacheStep is by how much vendors keep less of a prompt than it has, at most.
const cacheStep = 130

// vendorCall is one call of a vendor.
type vendorCall struct {
	at     string // backend and key, as the gateway names them
	fault  string // empty for none
	late   bool   // the answer had begun
	prompt int    // tokens, 0 if it was refused
	read   int    // of them, from the prompt cache
}

// faultyRun is conversations over a route of vendors that fail.
type faultyRun struct {
	*world
	share float64 // of calls that fail
	total int     // calls of vendors after which a key is revoked

	mu       sync.Mutex // guards the rest
	random   *rand.Rand
	talks    map[string]*faultyTalk
	calls    int
	faults   map[string]int
	lost     int // thinking of a current turn
	rejected []string
	whole    int64 // tokens of answers that came whole, of clients that do not stream
	left     atomic.Int64
}

// faultyTalk is one conversation: what its client asked, each with the calls of vendors that it took.
type faultyTalk struct {
	asked  [][]vendorCall
	ended  []string // how each went: answered, cut, refused
	begins []int    // the first of each tool loop in asked
}

var talkName = regexp.MustCompile(`talk-\d+-[a-z]+`)

// of is the newest call of a conversation. The caller holds mu.
func (f *faultyRun) of(body []byte) *vendorCall {
	t := f.talks[string(talkName.Find(body))]
	calls := t.asked[len(t.asked)-1]
	return &calls[len(calls)-1]
}

// observed is a vendor that fails, and answers as the question wants it: "3 looks" are three calls of a tool, one
// after the other.
func (f *faultyRun) observed(b backendCase) backendCase {
	name := b.name
	b.after = func(r *http.Request) {
		if r.Context().Err() != nil {
			f.left.Add(1)
		}
	}
	return b.with(name, func(c *upstreamtest.Config) {
		c.PromptCache = true
		c.Fault = func(r *upstreamtest.Request) *upstreamtest.Fault { return f.fault(name, r) }
		c.Observe = func(r upstreamtest.Request) {
			if r.Endpoint == upstreamtest.EndpointModels {
				return
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			f.lost += r.Missing + missing(name, r.Body)
			if r.Rejection != "" {
				f.rejected = append(f.rejected, name+": "+r.Rejection)
			}
			if now := f.of(r.Body); r.Rejection == "" && r.Prompt > 0 {
				now.prompt, now.read = r.Prompt, r.CacheRead
				if !r.Stream {
					f.whole += int64(r.Prompt + r.Output)
				}
			}
		}
		c.Answer = func(r *upstreamtest.Request) *upstreamtest.Answer {
			h := fnv.New64a()
			_, _ = fmt.Fprint(h, r.User, len(r.Results))
			said := fmt.Sprintf("%x. %s", h.Sum64(), strings.Repeat("So it goes on. ", 6))
			looks, _ := strconv.Atoi(r.User[strings.LastIndex(r.User, "looks: ")+len("looks: "):])
			a := upstreamtest.Reply(upstreamtest.Think(name+" thinks "+said), upstreamtest.Say("So it is, "+said))
			if len(r.Results) < looks {
				a = upstreamtest.Reply(a.Blocks[0], upstreamtest.Use("look", fmt.Sprintf(`{"q":"%s looks %s"}`, name, said)))
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			if now := f.of(r.Body); now.fault == faultCut {
				if now.late = f.random.IntN(2) == 0; now.late {
					a = a.CutAfter(5+f.random.IntN(3), true)
				} else {
					a = a.CutAfter(1, f.random.IntN(2) == 0)
				}
			}
			return &a
		}
	})
}

var looksOf = regexp.MustCompile(`(\S+) looks ([0-9a-f]+)\.`)

// missing counts the vendor's own thinking that the current tool loop of a request lacks, as far as the vendor shows it
// and takes it back in the open.
func missing(vendor string, body []byte) (n int) {
	loop := string(body)
	if loop = loop[strings.LastIndex(loop, "looks: "):]; vendor == "gemini" {
		for _, call := range gjson.GetBytes(body, "messages.#.tool_calls|@flatten").Array() {
			if strings.Contains(call.Get("function.arguments").Str, vendor+" looks ") &&
				strings.Contains(loop, call.Get("id").Str) &&
				call.Get("extra_content.google.thought_signature").Str == thinking.BypassSignature {
				n++
			}
		}
	}
	for _, look := range looksOf.FindAllStringSubmatch(loop, -1) {
		if strings.HasSuffix(look[1], vendor) && slices.Contains([]string{"claude", "kimi", "kimi-chat"}, vendor) &&
			!strings.Contains(loop, vendor+" thinks "+look[2]) {
			n++
		}
	}
	return n
}

// fault notes a call, and says what it fails with.
func (f *faultyRun) fault(backend string, r *upstreamtest.Request) *upstreamtest.Fault {
	if r.Endpoint == upstreamtest.EndpointModels {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	at := backend
	if key := r.Header.Get("X-Api-Key"); key != "" {
		at += ":" + key
	}
	t := f.talks[string(talkName.Find(r.Body))]
	last := len(t.asked) - 1
	f.calls++
	kind := ""
	switch {
	case f.share > 0 && at == "claude:KEY_A" && f.calls > f.total:
		kind = faultRevoked
	case f.random.Float64() < f.share:
		kind = faultKinds[f.random.IntN(len(faultKinds))]
	}
	streams := gjson.GetBytes(r.Body, "stream").Bool()
	if !streams && kind == faultCut {
		kind = "reset"
	} else if !streams && kind == "error as first event" {
		kind = "500"
	}
	t.asked[last] = append(t.asked[last], vendorCall{at: at, fault: kind})
	f.faults[kind]++
	dialect := map[upstreamtest.Endpoint]wire.Dialect{upstreamtest.EndpointMessages: wire.Messages,
		upstreamtest.EndpointChat: wire.Chat, upstreamtest.EndpointResponses: wire.Responses}[r.Endpoint]
	hang := upstreamtest.Dropped()
	hang.Pause = upstreamtest.Until(nil)
	faults := map[string]upstreamtest.Fault{
		"429": upstreamtest.RateLimited(-1), "429 with Retry-After": upstreamtest.RateLimited(0),
		"429 with Retry-After of 1 s": upstreamtest.RateLimited(1), "500": upstreamtest.Canned(500, ""),
		"529": upstreamtest.Overloaded(), faultHang: hang, "reset": upstreamtest.Dropped(),
		"error as first event": upstreamtest.ErrorFirst(dialect, 529, "Overloaded"),
		faultRevoked:           upstreamtest.Canned(http.StatusUnauthorized, ""),
	}
	if fault, ok := faults[kind]; ok {
		return &fault
	}
	return nil
}

// ended notes how a request of a client went, and says whether it is sent again.
func (f *faultyRun) ended(name, dialect string, got answered) (again bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	how := "answered"
	switch {
	case got.status != 200:
		how = "refused"
	case got.header.Get("Content-Type") != "text/event-stream":
	case dialect == "messages" && !strings.Contains(got.body, "event: message_stop"),
		dialect == "chat" && !strings.Contains(got.body, "[DONE]\n"),
		dialect == "responses" && !strings.Contains(got.body, "event: response.completed"):
		how = "cut"
		// In the words of the dialect: an error that the client's library raises.
		require.Contains(f, got.body, map[string]string{"messages": "event: error\n", "chat": `data: {"error":`,
			"responses": "event: response.failed\n"}[dialect])
	}
	t := f.talks[name]
	t.ended, t.asked = append(t.ended, how), append(t.asked, nil)
	return how != "answered" && len(t.ended) < 1000
}

// play leads so many conversations, each of four questions, through two gateways that share one Redis.
func (f *faultyRun) play(redis *redistest.Server, conversations int) {
	f.shares(redis)
	var fronts []*front
	for range 2 {
		limiter := limit.New(redis.Client(), limit.Options{})
		f.Cleanup(func() { require.NoError(f, limiter.Close()) })
		f.config.Shared.Limiter = limiter
		fronts = append(fronts, f.gateway())
	}
	queue := make(chan int)
	var all sync.WaitGroup
	for range 12 {
		all.Go(func() {
			for n := range queue {
				f.lead(n, fronts)
			}
		})
	}
	for n := range conversations {
		queue <- n
	}
	close(queue)
	all.Wait()
	f.books(redis)
}

// lead is one conversation, whose calls go to the gateways by turns.
func (f *faultyRun) lead(n int, fronts []*front) {
	dialect := []string{"messages", "chat", "responses"}[n%3]
	name := fmt.Sprintf("talk-%d-%s", n, dialect)
	f.mu.Lock()
	f.talks[name] = &faultyTalk{asked: [][]vendorCall{nil}}
	f.mu.Unlock()
	c, m := fronts[n%2].anyClient(dialect, "claude-opus-4-8")
	if mine, ok := c.(*messagesClient); ok { // which marks what it will send again, as agents do
		mine.damage = func(history []message) []message {
			blocks := history[len(history)-1].content
			blocks[len(blocks)-1].marked = true
			return history
		}
	}
	m.within(name)
	m.stream = n%2 == 0
	if r, ok := c.(*responsesClient); ok {
		r.stream = m.stream
	}
	m.header.Set("Test-Key", map[bool]string{true: "streams", false: "whole"}[m.stream])
	m.again = func(got answered) bool {
		again := f.ended(name, dialect, got)
		m.gateway = fronts[(n+m.calls)%2]
		return again
	}
	for q := range 4 {
		text := fmt.Sprintf("%s, question %d. ", name, q)
		if q == 0 { // what an agent brings with it
			text += strings.Repeat(fmt.Sprintf("This is what %s is about. ", name), 900)
		}
		f.mu.Lock()
		f.talks[name].begins = append(f.talks[name].begins, len(f.talks[name].ended))
		f.mu.Unlock()
		require.NotEmpty(f, c.say(fmt.Sprintf("%s looks: %d", text, (n/3+q)%4)))
	}
}

// books awaits that budgets have what the vendors told, and nothing is reserved.
func (f *faultyRun) books(redis *redistest.Server) {
	client := redis.Client()
	f.mu.Lock()
	cut, asked := 0, 0
	for _, t := range f.talks {
		for _, how := range t.ended {
			if how != "refused" { // a request that failed at every vendor took nothing of any
				asked++
			}
			if how == "cut" {
				cut++
			}
		}
	}
	whole := f.whole
	f.mu.Unlock()
	var books map[string]string
	sums := map[string]*tally.Counts{}
	require.Eventually(f, func() bool {
		var err error
		books, err = client.HGetAll(f.Context(), limit.Prefix+"{default}:total").Result()
		require.NoError(f, err)
		page, err := tally.New(client, 0).Read(f.Context(), tally.Query{Dimension: tally.ByKey,
			First: time.Now().AddDate(0, 0, -1), Last: time.Now()})
		require.NoError(f, err)
		sums = map[string]*tally.Counts{"whole": {}, "streams": {}}
		for _, row := range page.Rows {
			sums[row.Name].Add(row.Counts)
		}
		for key, sum := range sums {
			held := books["key:"+key+":tokens:held"]
			if held != "" && held != "0" || books["key:"+key+":tokens"] != fmt.Sprint(sum.Input+sum.Output) {
				return false
			}
		}
		told := sums["whole"].Input + sums["whole"].Output
		return (told == whole || told < whole && f.left.Load() > 0) && // what came too late is not charged
			sums["whole"].Calls+sums["streams"].Calls == int64(asked) && sums["streams"].Failed == int64(cut)
	}, 30*time.Second, 20*time.Millisecond, "%d tokens, %d calls, %d cut; %v %+v", whole, asked, cut, &books, &sums)
	f.Logf("budgets: %d tokens of whole answers as the vendors told them, %d of streams, %d of %d calls cut, %d estimated",
		whole, sums["streams"].Input+sums["streams"].Output, cut, asked, sums["streams"].Estimated)
}

// figures are what a run shows.
type figures struct {
	asked, calls, faults, moves, needless, lost, failed, cut int
	strayed                                                  int // went elsewhere inside of a tool loop, unasked
	// Of calls whose conversation stayed where it was, and had its prompt in the cache as far as it was known before;
	// calm is the same of these calls in the run without faults.
	// known is how much of their prompts the calls before had, which is what the caches have for sure.
	stayed, prompt, known, read, calmPrompt, calmRead int
}

// figures judges every request of every client; calm is the run without faults.
func (f *faultyRun) figures(choices int, calm *faultyRun) (sum figures) {
	for name, t := range f.talks {
		before := vendorCall{}
		answered := 0
		for i, how := range t.ended {
			sum.asked++
			if calls := t.asked[i]; len(calls) > 0 && before.at != calls[0].at && !slices.Contains(t.begins, i) {
				sum.strayed++
			}
			tried := map[string]bool{}
			inRow := 0
			for j, c := range t.asked[i] {
				sum.calls++
				tried[c.at] = true
				if j > 0 && t.asked[i][j-1].at != c.at {
					sum.moves++
					if inRow < 2 && !slices.Contains(alone, t.asked[i][j-1].fault) {
						sum.needless++
						f.Logf("moved without need: %+v", t.asked[i])
					}
					inRow = 0
				}
				if c.fault != "" {
					sum.faults++
					inRow++
				}
				if c.prompt > 0 && c.at == before.at {
					same := calm.talks[name].asked[answered][0]
					sum.stayed++
					sum.prompt += c.prompt
					sum.known += min(c.prompt, before.prompt)
					sum.read += c.read
					sum.calmPrompt += same.prompt
					sum.calmRead += same.read
					if c.read < before.prompt-cacheStep {
						f.Logf("%s, call %d at %s: %d tokens cached of the %d of the call before", name, answered, c.at, c.read,
							before.prompt)
					}
				}
				if c.prompt > 0 {
					before = c
				}
			}
			last := vendorCall{}
			if n := len(t.asked[i]); n > 0 {
				last = t.asked[i][n-1]
			}
			switch {
			case how == "answered":
				answered++
			case how == "cut":
				if sum.cut++; !last.late {
					sum.lost++
					f.Logf("a client got an error of a call that had not begun: %+v", t.asked[i])
				}
			case how == "refused":
				if sum.failed++; len(tried) < choices {
					sum.lost++
					f.Logf("a client got an error, and not all were asked: %+v", t.asked[i])
				}
			}
		}
	}
	return sum
}

// cached are the shares of the prompts that were read from the cache, with faults and without them.
func (s figures) cached() (faulty, calm float64) {
	return float64(s.read) / float64(max(1, s.prompt)), float64(s.calmRead) / float64(max(1, s.calmPrompt))
}

// Conversations of tool loops with thinking, over routes of vendors of whose calls 30 % fail in all ways, through two
// gateways by turns. Each call that fails before its first byte is answered, and one that broke off when it is sent
// again; no vendor refuses a request for its form, no thinking of a current turn is lost, nothing is asked more often
// than faults make it necessary, prompt caches are found again, and budgets are exact. MNEME_CONVERSATIONS says how
// many there are.
func TestRoutesUnderFaults(t *testing.T) {
	testtier.Slow(t)
	conversations, err := strconv.Atoi(cmp.Or(os.Getenv("MNEME_CONVERSATIONS"), "30"))
	require.NoError(t, err)
	vendors := []backendCase{cachingClaude, cachingGPT, kimi, gemini, gptChat}
	for i := range vendors {
		if i%2 == 1 {
			vendors[slices.IndexFunc(vendors, func(b backendCase) bool { return strings.HasPrefix(b.name, "kimi") })] = kimiChat
		}
		route := slices.Concat(vendors[i:], vendors[:i])
		t.Run(route[0].name+" first", func(t *testing.T) {
			t.Parallel() // most of the time is spent waiting for vendors
			var calm *faultyRun
			run := func(share float64) (*faultyRun, figures) {
				f := &faultyRun{share: share, random: rand.New(rand.NewPCG(7, uint64(i))), talks: map[string]*faultyTalk{},
					total: 3 * conversations / len(vendors), faults: map[string]int{}}
				var failing []backendCase
				for _, b := range route {
					failing = append(failing, f.observed(b))
				}
				f.world = routed(t, failing...)
				r := f.config.Routes["main"]
				r.Keys = map[string][]proxy.Key{"claude": {{Name: "KEY_A", Value: "KEY_A"}, {Name: "KEY_B", Value: "KEY_B"}}}
				f.config.Routes["main"] = r
				if share > 0 {
					f.config.Limits.Upstream.FirstByte = 3 * time.Second
				}
				f.config.Limits.Upstream.Failures = -1 // a circuit would leave out what is to be tried
				f.config.Limits.Upstream.Burst = 1 << 20
				budget, err := access.ParseBudgets("1000000000tokens/total")
				require.NoError(t, err)
				f.caller = func(r *http.Request) access.Principal {
					return access.Principal{Key: r.Header.Get("Test-Key"), Limits: access.Limits{Budget: budget}}
				}
				f.play(redistest.Start(t), conversations/len(vendors))
				if calm == nil {
					calm = f
				}
				got := f.figures(len(route)+1, calm)
				t.Logf("faults in %.0f %%: %+v, %v", 100*share, got, f.faults)
				require.Empty(t, f.rejected, "refused for their form")
				require.Zero(t, f.lost, "thinking of a current turn that did not come back")
				f.conforms(0)
				return f, got
			}
			_, got := run(0)
			require.Equal(t, got.asked, got.calls)
			f, got := run(.3)
			slow := int(f.left.Load()) // calls that a busy machine did not answer in time
			cached, possible := got.cached()
			t.Logf("cached share of calls that stayed %.4f, without faults %.4f; %d moves for %d faults; %d calls were too slow",
				cached, possible, got.moves, got.faults, slow)
			require.Zero(t, got.lost)
			require.LessOrEqual(t, got.calls, got.asked+got.faults+slow, "more than one call for a fault")
			require.LessOrEqual(t, got.needless, slow, "moved after less than two faults")
			require.Greater(t, possible, .8)
			// The shares differ by what each call added to its prompt, too, so they are printed; what counts is that what
			// the caches had was read.
			require.GreaterOrEqual(t, float64(got.read), .98*float64(got.known))
		})
	}
}

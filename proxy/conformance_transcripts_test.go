package proxy_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/internal/upstreamtest"
	"mneme/proxy"
)

// transcript is a row of the suite: a dialogue, and what vendors and clients must receive in it. It is played once for
// each combination of vendors, clients, models and variants.
type transcript struct {
	name   string
	fault  string // the failure that the row guards against
	source string // of the vendor's rule or of the client's habit: threads (owner/repo#n) or pages

	vendors    [][]backendCase // of one run each; the first vendor is active
	dialects   []string        // of clients
	models     []string        // the first vendor's if empty
	dimensions []variants
	flags      flags

	turns []turn
}

type flags int

const (
	slow     flags = 1 << iota // the row takes more than half a second
	sampled                    // the race detector plays every third run
	noBudget                   // the gateway has no thinking budget for clients that cannot send one
	golden                     // testdata/transcripts has the wire of the first run
)

func row(name, fault string, runs transcript, turns ...turn) transcript {
	runs.name, runs.fault, runs.turns = name, fault, turns
	return runs
}

// runEach selects a run for each vendor, with a client of the messages dialect.
func runEach(vendors ...backendCase) (r transcript) {
	for _, b := range vendors {
		r = r.runWith(b)
	}
	return r.clients("messages")
}

// runWith selects a run with several vendors.
func runWith(vendors ...backendCase) transcript { return runEach().runWith(vendors...) }

func (r transcript) runWith(vendors ...backendCase) transcript {
	r.vendors = append(slices.Clip(r.vendors), vendors)
	return r
}

func (r transcript) cite(source string) transcript          { r.source = source; return r }
func (r transcript) clients(names ...string) transcript     { r.dialects = names; return r }
func (r transcript) asking(models ...string) transcript     { r.models = models; return r }
func (r transcript) vary(dimensions ...variants) transcript { r.dimensions = dimensions; return r }
func (r transcript) flag(all flags) transcript              { r.flags = all; return r }

// turn is a step of a dialogue, or an expectation.
type turn func(p *play)

// variants are alternatives that a row is played in.
type variants []variant

// variant is played before the first turn.
type variant struct {
	name  string
	setup turn // nil for nothing
}

var (
	both = []string{"messages", "chat"}
	all3 = []string{"messages", "chat", "responses"}

	streams = variants{{"whole", nil}, {"streamed", streamed}}
	naming  = variants{{"named", nil}, {"unnamed", unnamed}}
	routes  = variants{{"main", nil}, {"teammate", route("/teammate/analytic")}}
)

// run is one combination of a row.
type run struct {
	vendors       []backendCase
	client, model string
	variants      []variant
	budgeted      bool // the gateway has a thinking budget
}

func (r run) name() string {
	words := []string{r.client, r.model, r.vendors[0].name}
	for _, b := range r.vendors[1:] {
		words[2] += "+" + b.name
	}
	for _, v := range r.variants {
		words = append(words, v.name)
	}
	return strings.Join(words, ", ")
}

func (r *transcript) runs() (runs []run) {
	budgeted := r.flags&noBudget == 0 && !slices.Equal(r.dialects, both[:1]) // chat and Responses cannot send a budget
	for _, client := range r.dialects {
		for _, vendors := range r.vendors {
			models := r.models
			if len(models) == 0 {
				models = []string{vendors[0].model}
			}
			for _, model := range models {
				runs = append(runs, run{vendors: vendors, client: client, model: model, budgeted: budgeted})
			}
		}
	}
	for _, dimension := range r.dimensions {
		var product []run
		for _, c := range runs {
			for _, v := range dimension {
				next := c
				next.variants = append(slices.Clone(c.variants), v)
				product = append(product, next)
			}
		}
		runs = product
	}
	return runs
}

func (r *transcript) test(t *testing.T) {
	if r.flags&slow != 0 {
		testtier.Slow(t)
	}
	t.Parallel()
	for i, c := range r.runs() {
		if r.flags&sampled == 0 || selects(i) {
			t.Run(c.name(), func(t *testing.T) { r.play(t, c, r.flags&golden != 0 && i == 0) })
		}
	}
}

// play is a run in progress.
type play struct {
	*world
	run
	t *testing.T

	conversation string // of new clients
	setups       []turn // of new clients
	refusals     int
	loses        bool
	active       int // index of the active vendor
	fronts       []*front
	front        int // index of the clients' gateway
	redis        *redistest.Server
	client       agent // that speaks
	clients      map[string]agent
	text         string // the newest answer's
	pending      []turn // of the variants, see later
}

func newPlay(t *testing.T, c run) *play {
	vendors := slices.Clone(c.vendors)
	for i, b := range vendors {
		if c.budgeted && b.config.Kind == proxy.KindAnthropic {
			vendors[i] = b.told(budgeted)
		}
	}
	return &play{world: newWorld(t, vendors...), run: c, t: t, conversation: "c1", clients: map[string]agent{}}
}

func (r *transcript) play(t *testing.T, c run, golden bool) {
	p := newPlay(t, c)
	if golden {
		p.wire = &wireLog{world: p.world, counts: map[string]int{}, names: map[string]string{}}
	}
	for _, v := range c.variants {
		if v.setup != nil {
			v.setup(p)
		}
	}
	at := 0
	defer func() {
		if t.Failed() {
			t.Logf("turn %d of %d failed. The row guards against this fault: %s", at+1, len(r.turns), r.fault)
		}
	}()
	for i, next := range r.turns {
		at = i
		next(p)
	}
	require.Empty(t, p.pending, "the row lacks a now for each later")
	switch {
	case p.checked: // see judgeAlone
	case p.loses:
		p.refusedAtMost(p.refusals)
	default:
		p.conforms(p.refusals)
	}
	if golden {
		r.compare(t, p.wire)
	}
}

// compare compares the wire of a run with the golden file, which -update writes.
func (r *transcript) compare(t *testing.T, wire *wireLog) {
	got := "Fault: " + r.fault + "\n\n" + wire.text.String()
	golden := filepath.Join("testdata", "transcripts", strings.ReplaceAll(r.name, " ", "-")+".txtar")
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(golden), 0o755))
		require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err, "go test -run TestConformanceTranscripts ./proxy -update writes it")
	require.Equal(t, string(want), got)
}

// gateway returns the clients' gateway, which it starts if necessary.
func (p *play) gateway() *front { return p.gatewayAt(p.front) }

// gatewayAt returns a gateway by its index. It starts those that do not run yet.
func (p *play) gatewayAt(i int) *front {
	for len(p.fronts) <= i {
		p.fronts = append(p.fronts, p.world.gateway())
	}
	return p.fronts[i]
}

func (p *play) vendor() *upstreamtest.Server { return p.world.vendors[p.run.vendors[p.active].name] }

// last returns the body of the active vendor's newest request.
func (p *play) last() string { return string(p.vendor().Last().Body) }

// in reports whether the run has a variant of this name.
func (p *play) in(name string) bool {
	return slices.ContainsFunc(p.variants, func(v variant) bool { return v.name == name })
}

func shareRedis(p *play) {
	p.redis = redistest.Start(p.t)
	p.shares(p.redis)
}

func (p *play) me() agent {
	if p.client == nil {
		as("")(p)
	}
	return p.client
}

// messages returns the client that speaks, which must speak the messages dialect.
func (p *play) messages() *messagesClient { return p.me().(*messagesClient) }

// Every row of the suite. With -update the wire of golden rows is rewritten. Read the difference, and check each line.
func TestConformanceTranscripts(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, row := range slices.Concat(
		backendRows, conversationRows, damageRows, ephemeralRows, errorRows, faultRows, formatRows, historyRows,
		itemRows, reasoningRows, responsesRows, toolRows, windowRows,
	) {
		require.False(t, names[row.name], "two rows are named %q", row.name)
		names[row.name] = true
		t.Run(row.name, row.test)
	}
}

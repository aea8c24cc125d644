package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/tidwall/gjson"

	"mneme/access"
	"mneme/access/price"
	"mneme/cmd/mneme/internal/app"
	"mneme/cmd/mneme/internal/config"
	"mneme/cmd/mneme/internal/term"
	"mneme/memory/secrets"
	"mneme/proxy"
	"mneme/proxy/usage"
	"mneme/proxy/wire"
)

func proxyCertify(con *console) *cobra.Command {
	c := &cobra.Command{
		Use:   "certify [<backend> …]",
		Short: "Try the vendors of your backends with what agents send, and print what they refuse.",
		Long: `It calls the real vendors with your keys, through a gateway of its own that shares nothing with those that run: a tool loop with thinking, from one backend to the next and back, effort off and highest, another vendor's history, an answer that breaks off, structured output, and a prompt that is too long. A cell of the table is ok, mended (the vendor refused, and what the gateway changed was taken), or refused. Each refusal is written as a line of JSON, without keys; send it to us if the gateway did not know it.

No call is made that could bring the cost above the ceiling; what is left out says so. A backend whose model has no price is left out: write one into prices.

Examples:
  mneme proxy certify
  mneme proxy certify claude kimi --ceiling 0.50 --out refusals.jsonl`,
	}
	ceiling := c.Flags().String("ceiling", "0.20", "The most that all calls together may cost, in `USD`")
	out := c.Flags().String("out", "certify.jsonl", "Where refusals are written, a `FILE` that is made anew")
	model := c.Flags().String("model", "", "The `MODEL` that is asked, by your name for it; without it the one that your agents use")
	var backends []string
	con.configured(c, config.LoadGateway, func(ctx context.Context, cfg config.Config, _ []string) error {
		most, err := access.ParseDollars(*ceiling)
		if err != nil {
			return wrong("--ceiling is an amount of USD such as 0.20, not %q", *ceiling)
		}
		return certify(ctx, con.stdout, cfg, backends, *model, most, *out)
	})
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		backends = args
		return run(c, nil)
	}
	return c
}

// certifier makes the calls, and listens to what vendors answer.
type certifier struct {
	gateway string
	left    int64 // millionths of a USD
	prices  *price.Table
	cfg     config.Config
	keys    *secrets.Set

	mu     sync.Mutex
	trial  string // that is under way; guarded by mu, as are the others
	active string // backend
	said   []refusalLine
}

// refusalLine is a vendor's error, as it is written.
type refusalLine struct {
	Status  int    `json:"status"`
	Vendor  string `json:"vendor"`
	Body    string `json:"body"`
	Label   string `json:"label"` // mended or refused
	Family  string `json:"family"`
	Source  string `json:"source"`
	Backend string `json:"backend"`
	Mended  string `json:"mended,omitempty"` // what the gateway changed, as X-AG-Mended names it
}

// maxRefusal bounds what is kept of an error, in bytes.
const maxRefusal = 64 << 10

// RoundTrip implements http.RoundTripper: it passes answers on, and keeps errors.
func (c *certifier) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil || resp.StatusCode < http.StatusBadRequest {
		return resp, err
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal)) // an error occurs again for the next reader
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), resp.Body), resp.Body}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.said = append(c.said, refusalLine{Status: resp.StatusCode, Body: c.keys.Text(string(body)), Family: c.trial,
		Vendor: cmp.Or(c.cfg.Proxy.Backends[c.active].Vendor, r.URL.Hostname()), Backend: c.active,
		Source: "mneme proxy certify, " + time.Now().UTC().Format(time.DateOnly)})
	return resp, nil
}

// errLeftOut is wrapped by why a call is not made.
var errLeftOut = errors.New("left out")

// certifyTalk is one conversation of a trial.
type certifyTalk struct {
	*certifier
	id, model string
	away      string // another backend, if several are tried
	messages  []any
	mended    []string
}

type object = map[string]any

// use has the next calls go to a backend.
func (t *certifyTalk) use(ctx context.Context, backend string) error {
	t.mu.Lock()
	t.active = backend
	t.mu.Unlock()
	g := gateway{url: t.gateway, credential: func(string) (http.RoundTripper, error) { return http.DefaultTransport, nil }}
	return use(ctx, io.Discard, g, backend)
}

// certifyAnswer bounds an answer, in tokens. It leaves room for the smallest budget of thinking.
const certifyAnswer = 2048

// post makes a call of the messages dialect, and has its answer, which the talk goes on from. With cut it leaves at the
// first bytes.
func (t *certifyTalk) post(ctx context.Context, said any, more object, cut bool) (gjson.Result, error) {
	t.messages = append(t.messages, object{"role": "user", "content": said})
	request := object{"model": t.model, "max_tokens": certifyAnswer, "messages": t.messages, "stream": cut}
	maps.Copy(request, more)
	body, err := json.Marshal(request)
	if err != nil {
		return gjson.Result{}, err
	}
	name := proxy.MapModel(t.cfg.Proxy.Backends[t.active].ModelMap, t.model)
	of, known := t.prices.At(false, name)
	if !known {
		return gjson.Result{}, fmt.Errorf("%w: there is no price of the model %q: write one into prices, or name another "+
			"model with --model", errLeftOut, name)
	}
	most := of.Most(usage.EstimateInput(body), certifyAnswer)
	if most > t.left {
		return gjson.Result{}, fmt.Errorf("%w: it may cost %s USD, %s are left", errLeftOut, access.Dollars(most),
			access.Dollars(t.left))
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, t.gateway+"/v1/messages", bytes.NewReader(body))
	if err != nil {
		return gjson.Result{}, err
	}
	r.Header.Set("X-AG-Conversation-Id", t.id)
	t.left -= most
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return gjson.Result{}, err
	}
	defer resp.Body.Close()
	if m := resp.Header.Get("X-AG-Mended"); m != "" {
		t.mended = append(t.mended, strings.Split(m, ",")...)
	}
	if cut && resp.StatusCode == http.StatusOK {
		_, err := resp.Body.Read(make([]byte, 64))
		t.messages = t.messages[:len(t.messages)-1]
		return gjson.Result{}, err
	}
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return gjson.Result{}, err
	}
	if resp.StatusCode != http.StatusOK { // what is refused costs nothing
		t.left += most
		return gjson.Result{}, errors.New(wire.ReadFailure(resp.StatusCode, answer).Message)
	}
	got := gjson.ParseBytes(answer)
	used := got.Get("usage")
	t.left += most - of.Cost(price.Tokens{Input: used.Get("input_tokens").Int(), Output: used.Get("output_tokens").Int(),
		CachedInput: used.Get("cache_read_input_tokens").Int(), CacheWrite: used.Get("cache_creation_input_tokens").Int()})
	t.messages = append(t.messages, object{"role": "assistant", "content": json.RawMessage(got.Get("content").Raw)})
	return got, nil
}

// thinkingMembers are those of a request that thinks, with a tool.
func thinkingMembers() object {
	tool := object{"name": "weather", "description": "The weather of a city now.", "input_schema": object{
		"type": "object", "properties": object{"city": object{"type": "string", "minLength": 1}},
		"required": []string{"city"}, "additionalProperties": false}}
	return object{"thinking": object{"type": "enabled", "budget_tokens": 1024}, "temperature": 1,
		"metadata": object{"user_id": "certify"}, "tools": []any{tool}}
}

// loop is a question that needs a tool, and its result.
func (t *certifyTalk) loop(ctx context.Context) error {
	got, err := t.post(ctx, "What is the weather in Paris now? Use the tool.", thinkingMembers(), false)
	for rounds := 0; err == nil && rounds < 3; rounds++ {
		var results []any
		for _, b := range got.Get(`content.#(type=="tool_use")#`).Array() {
			results = append(results, object{"type": "tool_result", "tool_use_id": b.Get("id").Str, "content": "18 °C, rain"})
		}
		if len(results) == 0 {
			return nil
		}
		got, err = t.post(ctx, results, thinkingMembers(), false)
	}
	return err
}

// once is a question by itself.
func once(said string, more object) func(context.Context, *certifyTalk) error {
	return func(ctx context.Context, t *certifyTalk) error {
		_, err := t.post(ctx, said, more, false)
		return err
	}
}

// certifyTrials are what is tried with each backend.
var certifyTrials = []struct {
	name string
	run  func(ctx context.Context, t *certifyTalk) error
}{
	{"tool loop with thinking", func(ctx context.Context, t *certifyTalk) error { return t.loop(ctx) }},
	{"effort off", once("Say ok.", object{"thinking": object{"type": "disabled"}})},
	{"highest effort", once("Say ok.", object{"output_config": object{"effort": "max"},
		"thinking": object{"type": "adaptive"}})},
	{"another vendor's history", func(ctx context.Context, t *certifyTalk) error {
		const id = "functions.weather:0"
		foreign := []any{object{"type": "thinking", "thinking": "I look.", "signature": "Zm9yZWlnbg=="},
			object{"type": "tool_use", "id": id, "name": "weather", "input": object{"city": "Rome"}}}
		t.messages = []any{object{"role": "user", "content": "Weather in Rome?"}, object{"role": "assistant",
			"content": foreign}}
		_, err := t.post(ctx, []any{object{"type": "tool_result", "tool_use_id": id, "content": "sun"}},
			thinkingMembers(), false)
		return err
	}},
	{"an answer that breaks off", func(ctx context.Context, t *certifyTalk) error {
		if _, err := t.post(ctx, "Count to twenty.", thinkingMembers(), true); err != nil {
			return err
		}
		return t.loop(ctx)
	}},
	{"structured output", once("A city?", object{"output_config": object{"format": object{"type": "json_schema",
		"schema": object{"type": "object", "properties": object{"city": object{"type": "string"}},
			"required": []string{"city"}, "additionalProperties": false}}}})},
	{"there and back", func(ctx context.Context, t *certifyTalk) error {
		home := t.active
		if t.away == home {
			return fmt.Errorf("%w: name a second backend", errLeftOut)
		}
		return errors.Join(t.loop(ctx), t.use(ctx, t.away), t.loop(ctx), t.use(ctx, home), t.loop(ctx))
	}},
	{"too long a prompt", func(ctx context.Context, t *certifyTalk) error {
		_, err := t.post(ctx, strings.Repeat("A long story. ", 90_000), nil, false)
		if err != nil && !errors.Is(err, errLeftOut) && strings.Contains(err.Error(), "too long") {
			return nil // which is how clients know that they have to make it shorter
		}
		return err
	}},
}

func certify(ctx context.Context, to io.Writer, cfg config.Config, names []string, model string, ceiling int64,
	out string,
) error {
	all := slices.Sorted(maps.Keys(cfg.Proxy.Backends))
	if len(names) == 0 {
		names = all
	}
	for _, name := range names {
		if !slices.Contains(all, name) {
			return fmt.Errorf("there is no backend %q in proxy.backends (%s)", name, strings.Join(all, ", "))
		}
	}
	prices, err := price.New(cfg.OwnPrices())
	if err != nil {
		return err
	}
	file, err := os.Create(out)
	if err != nil {
		return fmt.Errorf("refusals cannot be written: %w; choose another file with --out", err)
	}
	defer file.Close()
	cfg.Auth = config.Auth{}
	keys := cfg.Secrets()
	for _, b := range cfg.Proxy.Backends {
		keys = append(keys, b.APIKeyEnv.Reveal())
	}
	c := &certifier{left: ceiling, prices: prices, cfg: cfg, keys: secrets.New(keys...)}
	at, stop, err := app.Gateway(ctx, cfg, c)
	if err != nil {
		return err
	}
	defer stop()
	c.gateway = at
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\t"+strings.Join(names, "\t"))
	failed, lines := 0, json.NewEncoder(file)
	for i, trial := range certifyTrials {
		row := []string{trial.name}
		for at, name := range names {
			t := &certifyTalk{certifier: c, id: fmt.Sprintf("certify-%d-%s", i, name), away: names[(at+1)%len(names)],
				model: cmp.Or(model, append(cfg.ModelsOf(name), cfg.Agents.Master.Model)[0])}
			c.mu.Lock()
			c.trial, c.said = trial.name, nil
			c.mu.Unlock()
			err := t.use(ctx, name)
			if err == nil {
				err = trial.run(ctx, t)
			}
			c.mu.Lock()
			said := c.said // a call that was left may still go on
			c.mu.Unlock()
			cell, label := "ok", "mended"
			t.mended = slices.Compact(slices.Sorted(slices.Values(t.mended)))
			switch {
			case errors.Is(err, errLeftOut):
				cell = err.Error()
			case err != nil:
				failed++
				cell, label = "refused: "+term.OneLine(c.keys.Text(err.Error()), 80), "refused"
			case len(said) > 0 && len(t.mended) > 0:
				cell = "mended: " + strings.Join(t.mended, ", ")
			}
			row = append(row, cell)
			for _, line := range said {
				line.Label, line.Mended = label, strings.Join(t.mended, ",")
				if err := lines.Encode(line); err != nil {
					return fmt.Errorf("writing %s: %w", out, err)
				}
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	_ = table.Flush()
	fmt.Fprintf(to, "about %s of %s USD are spent; refusals are in %s\n", access.Dollars(ceiling-c.left),
		access.Dollars(ceiling), out)
	if failed > 0 {
		return fmt.Errorf("%d trials failed", failed)
	}
	return nil
}

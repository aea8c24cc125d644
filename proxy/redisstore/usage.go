package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"mneme/access/tally"
	"mneme/memory"
	"mneme/memory/redisscript"
	"mneme/proxy/usage"
)

// usageKey is a stream with one entry for each model call, by the time at which
// it was written. Fields that are empty or 0 are left out:
//
//	at request tenant route conversation chat run backend model upstream_model
//	input cache_read cache_creation output reasoning outcome estimated key tenant_name user cost_micro_usd priced
const usageKey = "proxy:usage"

// usageBatch is how many entries are read at once.
const usageBatch = 1000

// clockSkew is how much later than Redis's a gateway's clock may be.
const clockSkew = time.Minute

// Usage keeps usage.Record values in a bounded stream. It is safe for concurrent use.
type Usage struct {
	redis redis.UniversalClient
	max   int64
	tally *tally.Book
}

var _ usage.Store = (*Usage)(nil)

// NewUsage is a store over client, which the caller closes, of about max records;
// 0 is 100,000. One takes about 300 bytes of a Redis, and 1 kB of the embedded
// store. What records took is counted in tally's counters, too, which keep a day for so long; 0 is tally.Keep.
func NewUsage(client redis.UniversalClient, max int64, keep time.Duration) *Usage {
	return &Usage{client, cmp.Or(max, 100_000), tally.New(client, keep)}
}

var usageAdd = redisscript.New(lua, "usage_add")

// AppendUsage implements usage.Store: the counters first, which know a record that comes again, and then the stream in
// one command.
func (u *Usage) AppendUsage(ctx context.Context, records []usage.Record) error {
	calls := make([]tally.Call, len(records))
	for i, r := range records {
		calls[i] = tallied(r)
	}
	if err := u.tally.Add(ctx, calls); err != nil {
		return err
	}
	args := []any{u.max}
	for _, r := range records {
		entry := usageEntry(r)
		args = append(args, len(entry))
		for _, word := range entry {
			args = append(args, word)
		}
	}
	if err := usageAdd.Run(ctx, u.redis, []string{usageKey}, args...).Err(); err != nil {
		return fmt.Errorf("adding to %s: %w", usageKey, err)
	}
	return nil
}

// EraseTenant removes the records of a tenant's calls. The stream is walked, in pieces; it is bounded.
func (u *Usage) EraseTenant(ctx context.Context, tenant string) error {
	for from := "-"; ; {
		entries, err := u.redis.XRangeN(ctx, usageKey, from, "+", usageBatch).Result()
		if err != nil {
			return fmt.Errorf("reading %s: %w", usageKey, err)
		}
		var gone []string
		for _, e := range entries {
			if e.Values["tenant_name"] == tenant || e.Values["tenant"] == tenant {
				gone = append(gone, e.ID)
			}
			from = "(" + e.ID
		}
		if len(gone) > 0 {
			if err := u.redis.XDel(ctx, usageKey, gone...).Err(); err != nil {
				return fmt.Errorf("removing from %s: %w", usageKey, err)
			}
		}
		if len(entries) < usageBatch {
			return nil
		}
	}
}

// mainRoute is what calls of no subagent are counted under.
const mainRoute = "main"

// tallied is a record as it is counted. A tenant's chat has the tenant's name in front of its id in a record, and not
// in the tenant's own counters.
func tallied(r usage.Record) tally.Call {
	tenant, _ := memory.ParseTenant(r.TenantName) // of a principal, or empty
	_, subagent, _ := strings.Cut(r.Route, "/")
	c := tally.Call{At: r.At, Request: r.RequestID, Tenant: tenant, Counts: tally.Counts{
		Input:  r.Tokens.Input + r.Tokens.CacheRead + r.Tokens.CacheCreation,
		Cached: r.Tokens.CacheRead, Output: r.Tokens.Output, Micros: r.CostMicros,
	}, Names: map[tally.By]string{
		tally.ByKey: r.Key, tally.ByUser: r.User, tally.ByChat: strings.TrimPrefix(r.Chat, tenant.String()+"/"),
		tally.BySubagent: cmp.Or(subagent, mainRoute), tally.ByModel: cmp.Or(r.UpstreamModel, r.Model),
	}}
	if !r.Priced {
		c.Counts.Unpriced = 1
	}
	return c
}

// UsageSince implements usage.Store.
func (u *Usage) UsageSince(ctx context.Context, since time.Time) iter.Seq2[usage.Record, error] {
	return func(yield func(usage.Record, error) bool) {
		start := strconv.FormatInt(max(0, since.Add(-clockSkew).UnixMilli()), 10)
		for end := "+"; ; {
			entries, err := u.redis.XRevRangeN(ctx, usageKey, end, start, usageBatch).Result()
			if err != nil {
				yield(usage.Record{}, fmt.Errorf("reading %s: %w", usageKey, err))
				return
			}
			for _, e := range entries {
				if !yield(usageRecord(e), nil) {
					return
				}
			}
			if len(entries) < usageBatch {
				return
			}
			end = "(" + entries[len(entries)-1].ID
		}
	}
}

// OldestUsage implements usage.Store.
func (u *Usage) OldestUsage(ctx context.Context) (time.Time, error) {
	entries, err := u.redis.XRangeN(ctx, usageKey, "-", "+", 1).Result()
	if err != nil {
		return time.Time{}, fmt.Errorf("reading %s: %w", usageKey, err)
	}
	if len(entries) == 0 {
		return time.Time{}, nil
	}
	return written(entries[0]), nil
}

// written is when Redis took an entry.
func written(e redis.XMessage) time.Time {
	ms, _, _ := strings.Cut(e.ID, "-")
	n, _ := strconv.ParseInt(ms, 10, 64) // Redis's own
	return time.UnixMilli(n).UTC()
}

// field is one of a record's by its name in an entry: a text or a count.
type field struct {
	name  string
	text  *string
	count *int64
}

func fieldsOf(r *usage.Record) [19]field {
	t := &r.Tokens
	return [...]field{
		{name: "request", text: &r.RequestID}, {name: "tenant", text: &r.Tenant}, {name: "route", text: &r.Route},
		{name: "conversation", text: &r.Conversation}, {name: "chat", text: &r.Chat}, {name: "run", text: &r.Run},
		{name: "backend", text: &r.Backend}, {name: "model", text: &r.Model},
		{name: "upstream_model", text: &r.UpstreamModel},
		{name: "input", count: &t.Input}, {name: "cache_read", count: &t.CacheRead},
		{name: "cache_creation", count: &t.CacheCreation},
		{name: "output", count: &t.Output}, {name: "reasoning", count: &t.Reasoning}, {name: "outcome", text: &r.Outcome},
		{name: "key", text: &r.Key}, {name: "tenant_name", text: &r.TenantName}, {name: "user", text: &r.User},
		{name: "cost_micro_usd", count: &r.CostMicros},
	}
}

// usageEntry is a record as names and values.
func usageEntry(r usage.Record) []string {
	entry := []string{"at", r.At.UTC().Format(time.RFC3339Nano)}
	for _, f := range fieldsOf(&r) {
		switch {
		case f.text != nil && *f.text != "":
			entry = append(entry, f.name, *f.text)
		case f.count != nil && *f.count != 0:
			entry = append(entry, f.name, strconv.FormatInt(*f.count, 10))
		}
	}
	if r.Estimated {
		entry = append(entry, "estimated", "true")
	}
	if r.Priced {
		entry = append(entry, "priced", "true")
	}
	return entry
}

// usageRecord reads an entry. Another program that writes into the stream can at worst
// add what is no number, which counts as 0.
func usageRecord(e redis.XMessage) (r usage.Record) {
	value := func(name string) string {
		s, _ := e.Values[name].(string)
		return s
	}
	for _, f := range fieldsOf(&r) {
		if f.text != nil {
			*f.text = value(f.name)
		} else if n, err := strconv.ParseInt(value(f.name), 10, 64); err == nil {
			*f.count = n
		}
	}
	var err error
	if r.At, err = time.Parse(time.RFC3339Nano, value("at")); err != nil {
		r.At = written(e)
	}
	r.Estimated, r.Priced = value("estimated") == "true", value("priced") == "true"
	return r
}

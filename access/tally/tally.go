// Package tally counts what calls of models took, for each tenant and UTC day, by key, user, chat, subagent and model.
//
// In Redis, in one hash tag for each tenant:
//
//	mneme:usage:{<tenant>}:<day>:<dimension>   hash: by name "calls input cached output micros unpriced"
//	mneme:usage:{<tenant>}:seen:<hour>         set: the requests of that hour that are counted
//
// A day is 2006-01-02. All of it expires. A book that keeps days for a shorter time than the one before it shows none
// that are older, and deletes them.
package tally

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
	"mneme/memory/redisscript"
)

//go:embed lua
var lua embed.FS

var add = redisscript.New(lua, "add")

// Prefix is how every key of this package begins in Redis; the tenant follows, in braces.
const Prefix = "mneme:usage:"

// Keep is how long counters are kept if nothing else is configured.
const Keep = 400 * 24 * time.Hour

// MostKeep is how long counters can be kept.
const MostKeep = maxDays * 24 * time.Hour

// remember is how long a call is known, so that one that is written again after a lost reply is not counted twice.
const remember = 24 * time.Hour

// pageRows is after how many rows a page ends; the piece of a hash that Redis gave last is not cut.
const pageRows = 1000

// ErrQuery is wrapped by refusals of a question; the text is for the caller.
var ErrQuery = errors.New("no such usage")

// By is a dimension: what a row stands for.
type By string

// The dimensions.
const (
	ByKey      By = "key"
	ByTenant   By = "tenant"
	ByUser     By = "user"
	ByChat     By = "chat"
	BySubagent By = "subagent"
	ByModel    By = "model"
)

// Dimensions lists them.
var Dimensions = []By{ByKey, ByTenant, ByUser, ByChat, BySubagent, ByModel}

// Counts are what calls took. Cost is in millionths of a USD, without the Unpriced calls.
type Counts struct {
	Calls    int64 `json:"calls"`
	Input    int64 `json:"input_tokens"`  // all of the prompts'
	Cached   int64 `json:"cached_tokens"` // part of Input
	Output   int64 `json:"output_tokens"`
	Micros   int64 `json:"cost_micro_usd"`
	Unpriced int64 `json:"unpriced_calls"` // whose model has no known price
}

// Add adds u.
func (c *Counts) Add(u Counts) {
	c.Calls, c.Input, c.Cached = c.Calls+u.Calls, c.Input+u.Input, c.Cached+u.Cached
	c.Output, c.Micros, c.Unpriced = c.Output+u.Output, c.Micros+u.Micros, c.Unpriced+u.Unpriced
}

// Call is one call of a model.
type Call struct {
	At      time.Time
	Request string // two calls with one id are one; empty: it is counted each time
	Tenant  memory.Tenant
	Names   map[By]string // of the dimensions but ByTenant; empty names are not counted
	Counts  Counts        // Calls is 1, whatever stands there
}

// Book is the counters of all tenants. It is safe for concurrent use.
type Book struct {
	redis redis.UniversalClient
	keep  time.Duration

	mu    sync.Mutex
	swept map[memory.Tenant]string // the day on which days that are too old were deleted last; guarded by mu
}

// New is a book over client, which the caller closes, that keeps a day for so long after its last call; 0 is Keep.
func New(client redis.UniversalClient, keep time.Duration) *Book {
	return &Book{redis: client, keep: cmp.Or(keep, Keep), swept: map[memory.Tenant]string{}}
}

func head(t memory.Tenant) string { return Prefix + "{" + t.String() + "}" }

func hash(t memory.Tenant, day string, by By) string { return head(t) + ":" + day + ":" + string(by) }

// Add counts calls, in one round trip. After an error some may be counted; they may be given again within a day, and
// each is counted once.
func (b *Book) Add(ctx context.Context, calls []Call) error {
	tenants := map[memory.Tenant][]any{}
	for _, c := range calls {
		args := tenants[c.Tenant]
		if args == nil {
			args = []any{remember.Milliseconds(), b.keep.Milliseconds()}
		}
		at, n := c.At.UTC(), c.Counts
		names := []any{string(ByTenant), c.Tenant.String()}
		for _, by := range Dimensions {
			if name := c.Names[by]; name != "" && by != ByTenant {
				names = append(names, string(by), name)
			}
		}
		args = append(args, at.Format("2006-01-02T15"), c.Request, at.Format(time.DateOnly),
			n.Input, n.Cached, n.Output, n.Micros, n.Unpriced, len(names)/2)
		tenants[c.Tenant] = append(args, names...)
	}
	var scripts []redisscript.Call
	for t, args := range tenants {
		scripts = append(scripts, redisscript.Call{Script: add, Keys: []string{head(t)}, Args: args})
	}
	for _, cmd := range redisscript.Run(ctx, b.redis, scripts...) {
		if err := cmd.Err(); err != nil && !redisscript.WrongType(err) { // of another program: trying again does not help
			return fmt.Errorf("counting usage: %w", err)
		}
	}
	for t := range tenants {
		if err := b.sweep(ctx, t); err != nil {
			return fmt.Errorf("deleting old usage: %w", err)
		}
	}
	return nil
}

// oldest is the first day that is kept.
func (b *Book) oldest(now time.Time) time.Time {
	return now.UTC().Add(-b.keep).Truncate(24 * time.Hour)
}

// sweepDays bounds how many days are deleted by one command.
const sweepDays = 100

// sweep deletes the days of a tenant that are older than is kept, once a day: they were to expire later when they were
// written, if more was kept then. Their names are known, so that nothing is searched.
func (b *Book) sweep(ctx context.Context, t memory.Tenant) error {
	day := b.oldest(time.Now())
	today := day.Format(time.DateOnly)
	b.mu.Lock()
	done := b.swept[t] == today
	b.mu.Unlock()
	if done {
		return nil
	}
	for end := time.Now().Add(-MostKeep); day.After(end); {
		var keys []string
		for range sweepDays {
			day = day.Add(-24 * time.Hour)
			for _, by := range Dimensions {
				keys = append(keys, hash(t, day.Format(time.DateOnly), by))
			}
		}
		if err := b.redis.Unlink(ctx, keys...).Err(); err != nil {
			return err
		}
	}
	b.mu.Lock()
	b.swept[t] = today
	b.mu.Unlock()
	return nil
}

// Forget removes one name of a dimension, such as an erased chat, from every day that is kept, in one round trip. What
// the same calls count for the key, the tenant and others stays. A call that is counted later has the name again. A nil
// book has nothing.
func (b *Book) Forget(ctx context.Context, of memory.Tenant, by By, name string) error {
	if b == nil {
		return nil
	}
	var days []string
	for day, end := b.oldest(time.Now()), time.Now().Add(clockSkew); !day.After(end); day = day.Add(24 * time.Hour) {
		days = append(days, day.Format(time.DateOnly))
	}
	_, err := b.each(ctx, days, func(p redis.Pipeliner, day string) { p.HDel(ctx, hash(of, day, by), name) })
	return err
}

// clockSkew is how far another process's clock may be ahead.
const clockSkew = time.Hour

// Erase removes all counters of a tenant, and what is known of its requests. The names of their keys follow from the
// days for which any are kept.
func (b *Book) Erase(ctx context.Context, t memory.Tenant) error {
	var names []string
	now := time.Now().UTC()
	for at := now.Add(24 * time.Hour); !at.Before(now.Add(-b.keep - 24*time.Hour)); at = at.Add(-24 * time.Hour) {
		for _, by := range Dimensions {
			names = append(names, hash(t, at.Format(time.DateOnly), by))
		}
	}
	for at := now.Add(2 * time.Hour); !at.Before(now.Add(-remember - 2*time.Hour)); at = at.Add(-time.Hour) {
		names = append(names, head(t)+":seen:"+at.Format("2006-01-02T15"))
	}
	for some := range slices.Chunk(names, 500) {
		if err := b.redis.Unlink(ctx, some...).Err(); err != nil {
			return fmt.Errorf("erasing usage: %w", err)
		}
	}
	return nil
}

// Query asks for the rows of some days.
type Query struct {
	Tenant       memory.Tenant
	By           By
	Since, Until time.Time // the first and the last day, which both are in it
	Name         string    // the one that is asked for; empty: all
	Cursor       string    // Page.Next of the page before
}

// Row is what one name took on one UTC day.
type Row struct {
	Day  string `json:"day"`
	Name string `json:"name"`
	Counts
}

// Page is a part of the rows, by day. A row may come twice while its day is still written; it is the same row.
type Page struct {
	Rows []Row  `json:"rows"`                  // never null
	Next string `json:"next_cursor,omitempty"` // the cursor of the next page; empty: this is the last one
}

// Read gives a page of rows. It asks Redis for pieces of a bounded size only. Errors that wrap ErrQuery are the asker's.
func (b *Book) Read(ctx context.Context, q Query) (Page, error) {
	days, err := q.days()
	if err != nil {
		return Page{}, err
	}
	page := Page{Rows: []Row{}}
	kept := b.oldest(time.Now()).Format(time.DateOnly)
	if days = slices.DeleteFunc(days, func(day string) bool { return day < kept }); len(days) == 0 {
		return page, nil
	}
	if q.Name != "" {
		cmds, err := b.each(ctx, days, func(p redis.Pipeliner, day string) {
			p.HGet(ctx, hash(q.Tenant, day, q.By), q.Name)
		})
		for i, cmd := range cmds {
			if text, err := cmd.(*redis.StringCmd).Result(); err == nil {
				page.Rows = append(page.Rows, Row{days[i], q.Name, counts(text)})
			}
		}
		return page, err
	}
	from, scan := days[0], uint64(0)
	if q.Cursor != "" {
		day, at, _ := strings.Cut(q.Cursor, ".")
		if scan, err = strconv.ParseUint(at, 10, 64); err != nil || !slices.Contains(days, day) {
			return Page{}, fmt.Errorf("%w: the cursor is none of this question; begin without one", ErrQuery)
		}
		from = day
	}
	days = days[slices.Index(days, from):]
	sizes, err := b.each(ctx, days, func(p redis.Pipeliner, day string) { p.HLen(ctx, hash(q.Tenant, day, q.By)) })
	if err != nil {
		return Page{}, err
	}
	for i, day := range days {
		for more := sizes[i].(*redis.IntCmd).Val() > 0; more; more = scan != 0 {
			if len(page.Rows) >= pageRows {
				page.Next = day + "." + strconv.FormatUint(scan, 10)
				return page, nil
			}
			var pairs []string
			pairs, scan, err = b.redis.HScan(ctx, hash(q.Tenant, day, q.By), scan, "", pageRows).Result()
			if err != nil {
				return Page{}, fmt.Errorf("reading usage: %w", err)
			}
			for n := 0; n+1 < len(pairs); n += 2 {
				page.Rows = append(page.Rows, Row{day, pairs[n], counts(pairs[n+1])})
			}
		}
		scan = 0
	}
	return page, nil
}

// each does something to every day in one round trip. What a day does not have is no error.
func (b *Book) each(ctx context.Context, days []string, ask func(redis.Pipeliner, string)) ([]redis.Cmder, error) {
	p := b.redis.Pipeline()
	for _, day := range days {
		ask(p, day)
	}
	cmds, err := p.Exec(ctx)
	for _, cmd := range cmds {
		if err := cmd.Err(); err != nil && !errors.Is(err, redis.Nil) && !redisscript.WrongType(err) {
			return nil, fmt.Errorf("the counters of usage: %w", err)
		}
	}
	if len(cmds) < len(days) {
		return nil, fmt.Errorf("the counters of usage: %w", err)
	}
	return cmds, nil
}

// maxDays bounds a question.
const maxDays = 3660

func (q Query) days() (days []string, err error) {
	if !slices.Contains(Dimensions, q.By) {
		return nil, fmt.Errorf("%w: by must be key, tenant, user, chat, subagent or model, not %q", ErrQuery, q.By)
	}
	const day = 24 * time.Hour
	since, until := q.Since.UTC().Truncate(day), q.Until.UTC().Truncate(day)
	if since.After(until) || until.Sub(since) > maxDays*day {
		return nil, fmt.Errorf("%w: since must be before until, and at most %d days", ErrQuery, maxDays)
	}
	for ; !since.After(until); since = since.Add(day) {
		days = append(days, since.Format(time.DateOnly))
	}
	return days, nil
}

// ParseDay reads a day: so many days before now (7d), a date such as 2026-01-31, or a time of RFC 3339.
// A failure wraps ErrQuery.
func ParseDay(s string, now time.Time) (time.Time, error) {
	if text, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.Atoi(text); err == nil && n >= 0 && n <= maxDays {
			return now.AddDate(0, 0, -n), nil
		}
	}
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if at, err := time.Parse(layout, s); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("%w: a day is so many days ago such as 7d, or a date such as 2026-01-31, not %q",
		ErrQuery, s)
}

// counts reads a row; what is no number counts as 0.
func counts(text string) (c Counts) {
	words := append(strings.Fields(text), make([]string, 6)...)
	for i, to := range []*int64{&c.Calls, &c.Input, &c.Cached, &c.Output, &c.Micros, &c.Unpriced} {
		*to, _ = strconv.ParseInt(words[i], 10, 64)
	}
	return c
}

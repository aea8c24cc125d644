// Package tally is what calls of models took, for each tenant and UTC day, by key, user, chat, subagent, model and
// backend. It owns the keys mneme:usage:{<tenant>}:… in Redis, all of which expire, and what a Book keeps of them in
// memory. Package limit writes them, by the same commit that charges a call to its budgets; this package reads and
// erases, and never counts a call by itself.
package tally

// In Redis, in one hash tag for each tenant:
//
//	mneme:usage:{<tenant>}:<day>:<dimension>   hash: by name the Counts, as numbers with spaces between them
//	mneme:usage:{<tenant>}:seen:<hour>         set: calls of that hour that have ended
//
// A day is 2006-01-02. All of it expires. A book that keeps days for a shorter time than the one before it shows none
// that are older, and deletes them.

import (
	"cmp"
	"context"
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

// Prefix is how every key of this package begins in Redis; the tenant follows, in braces.
const Prefix = "mneme:usage:"

// Keep is how long counters are kept if nothing else is configured.
const Keep = 400 * 24 * time.Hour

// MostKeep is how long counters can be kept.
const MostKeep = maxDays * 24 * time.Hour

// pageRows is after how many rows a page ends; the piece of a hash that Redis gave last is not cut.
const pageRows = 1000

// ErrQuery is wrapped by refusals of a question; the text is for the caller.
var ErrQuery = errors.New("no such usage")

// Dimension selects what a row counts.
type Dimension string

// The dimensions.
const (
	ByKey      Dimension = "key"
	ByTenant   Dimension = "tenant"
	ByUser     Dimension = "user"
	ByChat     Dimension = "chat"
	BySubagent Dimension = "subagent"
	ByModel    Dimension = "model"   // as the backend calls it
	ByBackend  Dimension = "backend" // its name in the configuration
)

// Dimensions lists them.
var Dimensions = []Dimension{ByKey, ByTenant, ByUser, ByChat, BySubagent, ByModel, ByBackend}

// Counts are what calls took. Cost is in millionths of a USD, without the Unpriced calls.
type Counts struct {
	Calls     int64 `json:"calls"`
	Input     int64 `json:"input_tokens"`  // all of the prompts'
	Cached    int64 `json:"cached_tokens"` // part of Input, read from the vendor's cache
	Output    int64 `json:"output_tokens"`
	Micros    int64 `json:"cost_micro_usd"`
	Unpriced  int64 `json:"unpriced_calls"`   // whose model has no known price
	Written   int64 `json:"written_tokens"`   // part of Input, written to the vendor's cache
	Reasoning int64 `json:"reasoning_tokens"` // part of Output
	Failed    int64 `json:"failed_calls"`     // that were not answered to their end
	Estimated int64 `json:"estimated_calls"`  // with tokens that the vendor left untold
}

// words are the counts in the order in which a row in Redis has them; rows from before there were so many end earlier.
func (c *Counts) words() [10]*int64 {
	return [...]*int64{&c.Calls, &c.Input, &c.Cached, &c.Output, &c.Micros, &c.Unpriced, &c.Written, &c.Reasoning,
		&c.Failed, &c.Estimated}
}

// Add adds u.
func (c *Counts) Add(u Counts) {
	deltas := u.words()
	for i, n := range c.words() {
		*n += *deltas[i]
	}
}

// String is a row as Redis has it.
func (c Counts) String() string {
	text := make([]byte, 0, 64)
	for _, n := range c.words() {
		text = append(strconv.AppendInt(text, *n, 10), ' ')
	}
	return string(text[:len(text)-1])
}

// Call is one call of a model. It counts for its tenant, and under each of its names that is not empty.
type Call struct {
	Time    time.Time
	Request string // its id: two calls with one id are one
	Tenant  memory.Tenant
	Counts  Counts

	Key, User, Chat, Subagent, Model, Backend string
}

// maxName bounds a name in the counters, in bytes: some of them are a client's.
const maxName = 160

// Names are all that a call counts for.
func (c *Call) Names(yield func(Dimension, string) bool) {
	for i, name := range [...]string{c.Key, c.Tenant.String(), c.User, c.Chat, c.Subagent, c.Model, c.Backend} {
		name = strings.ToValidUTF8(name[:min(len(name), maxName)], "\uFFFD")
		if name != "" && !yield(Dimensions[i], name) {
			return
		}
	}
}

// Book is the counters of all tenants. It is safe for concurrent use.
type Book struct {
	redis redis.UniversalClient
	keep  time.Duration

	mu    sync.Mutex
	swept map[memory.Tenant]string // the day on which days that are too old were deleted last; guarded by mu
}

// New returns a book over client, which the caller closes. It keeps a day for keep after its last call; 0 is Keep.
func New(client redis.UniversalClient, keep time.Duration) *Book {
	return &Book{redis: client, keep: cmp.Or(keep, Keep), swept: map[memory.Tenant]string{}}
}

// Head is how the keys of a tenant begin.
func Head(t memory.Tenant) string { return Prefix + "{" + t.String() + "}" }

func hash(t memory.Tenant, day string, dim Dimension) string {
	return Head(t) + ":" + day + ":" + string(dim)
}

// oldest is the first day that is kept.
func (b *Book) oldest(now time.Time) time.Time {
	return now.UTC().Add(-b.keep).Truncate(24 * time.Hour)
}

// Sweep deletes the days of a tenant that are older than is kept, once a day: they were to expire later when they were
// written, if more was kept then. Their names are known, so that nothing is searched.
func (b *Book) Sweep(ctx context.Context, t memory.Tenant) error {
	oldest := b.oldest(time.Now())
	today := oldest.Format(time.DateOnly)
	b.mu.Lock()
	done := b.swept[t] == today
	b.mu.Unlock()
	if done {
		return nil
	}
	if err := b.remove(ctx, t, oldest.Add(-day), time.Now().Add(-MostKeep-day)); err != nil {
		return err
	}
	b.mu.Lock()
	b.swept[t] = today
	b.mu.Unlock()
	return nil
}

// remove deletes the counters of a tenant of the days from one on back to another.
func (b *Book) remove(ctx context.Context, t memory.Tenant, newest, oldest time.Time) error {
	var keys []string
	for date := newest.UTC(); date.After(oldest); date = date.Add(-day) {
		for _, dim := range Dimensions {
			keys = append(keys, hash(t, date.Format(time.DateOnly), dim))
		}
	}
	for chunk := range slices.Chunk(keys, 500) {
		if err := b.redis.Unlink(ctx, chunk...).Err(); err != nil {
			return err
		}
	}
	return nil
}

// Forget removes one name of a dimension, such as an erased chat, from every day that is kept, in one round trip. What
// the same calls count for the key, the tenant and others stays. A call that is counted later has the name again. A nil
// book has nothing.
func (b *Book) Forget(ctx context.Context, t memory.Tenant, dim Dimension, name string) error {
	if b == nil {
		return nil
	}
	var days []string
	for day, end := b.oldest(time.Now()), time.Now().Add(clockSkew); !day.After(end); day = day.Add(24 * time.Hour) {
		days = append(days, day.Format(time.DateOnly))
	}
	_, err := b.each(ctx, days, func(p redis.Pipeliner, day string) { p.HDel(ctx, hash(t, day, dim), name) })
	return err
}

// clockSkew is how far another process's clock may be ahead.
const clockSkew = time.Hour

// Erase removes all counters of a tenant. The names of their keys follow from the days for which any are kept. The ids
// of its calls of a day stay until they expire: a call that had ended and is not known would be charged again.
func (b *Book) Erase(ctx context.Context, t memory.Tenant) error {
	now := time.Now()
	if err := b.remove(ctx, t, now.Add(day), now.Add(-b.keep-2*day)); err != nil {
		return fmt.Errorf("erasing usage: %w", err)
	}
	return nil
}

// Query asks for the rows of some days.
type Query struct {
	Tenant      memory.Tenant
	Dimension   Dimension
	First, Last time.Time // the first and the last day, which both are in it
	Name        string    // the one that is asked for; empty: all
	Cursor      string    // Page.Next of the page before
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
	oldest := b.oldest(time.Now()).Format(time.DateOnly)
	if days = slices.DeleteFunc(days, func(day string) bool { return day < oldest }); len(days) == 0 {
		return page, nil
	}
	if q.Name != "" {
		cmds, err := b.each(ctx, days, func(p redis.Pipeliner, day string) {
			p.HGet(ctx, hash(q.Tenant, day, q.Dimension), q.Name)
		})
		for i, cmd := range cmds {
			if text, err := cmd.(*redis.StringCmd).Result(); err == nil {
				page.Rows = append(page.Rows, Row{days[i], q.Name, counts(text)})
			}
		}
		return page, err
	}
	start, scan := days[0], uint64(0)
	if q.Cursor != "" {
		day, offset, _ := strings.Cut(q.Cursor, ".")
		if scan, err = strconv.ParseUint(offset, 10, 64); err != nil || !slices.Contains(days, day) {
			return Page{}, fmt.Errorf("%w: the cursor is none of this question; begin without one", ErrQuery)
		}
		start = day
	}
	days = days[slices.Index(days, start):]
	sizes, err := b.each(ctx, days, func(p redis.Pipeliner, day string) { p.HLen(ctx, hash(q.Tenant, day, q.Dimension)) })
	if err != nil {
		return Page{}, err
	}
	for i, day := range days {
		for hasMore := sizes[i].(*redis.IntCmd).Val() > 0; hasMore; hasMore = scan != 0 {
			if len(page.Rows) >= pageRows {
				page.Next = day + "." + strconv.FormatUint(scan, 10)
				return page, nil
			}
			var pairs []string
			pairs, scan, err = b.redis.HScan(ctx, hash(q.Tenant, day, q.Dimension), scan, "", pageRows).Result()
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

const day = 24 * time.Hour

func (q Query) days() (days []string, err error) {
	if !slices.Contains(Dimensions, q.Dimension) {
		return nil, fmt.Errorf("%w: by must be key, tenant, user, chat, subagent, model or backend, not %q", ErrQuery,
			q.Dimension)
	}
	first, last := q.First.UTC().Truncate(day), q.Last.UTC().Truncate(day)
	if first.After(last) || last.Sub(first) > maxDays*day {
		return nil, fmt.Errorf("%w: since must be before until, and at most %d days", ErrQuery, maxDays)
	}
	for ; !first.After(last); first = first.Add(day) {
		days = append(days, first.Format(time.DateOnly))
	}
	return days, nil
}

// ParseDay reads a day: so long before now (7d, 24h, 90m), a date such as 2026-01-31, or a time of RFC 3339, which stand
// for the day in which they are. A failure wraps ErrQuery.
func ParseDay(s string, now time.Time) (time.Time, error) {
	ago, err := time.ParseDuration(s)
	if text, ok := strings.CutSuffix(s, "d"); ok {
		var n int
		n, err = strconv.Atoi(text)
		ago = time.Duration(min(n, maxDays+1)) * 24 * time.Hour
	}
	if err == nil && ago >= 0 && ago <= MostKeep {
		return now.Add(-ago), nil
	}
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%w: a day is a time ago such as 7d or 24h, or a date such as 2026-01-31, not %q",
		ErrQuery, s)
}

// counts reads a row; what is no number counts as 0.
func counts(text string) (c Counts) {
	words := strings.Fields(text)
	for i, dst := range c.words() {
		if i < len(words) {
			*dst, _ = strconv.ParseInt(words[i], 10, 64)
		}
	}
	return c
}

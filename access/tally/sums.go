package tally

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"mneme/memory"
)

// This file adds the counters of all tenants up, and keeps those of a process without Redis.

// Sums are what the names of a dimension took in some days, of all tenants together. The chats and users of others than
// the default tenant have the tenant's name in front.
func (b *Book) Sums(ctx context.Context, by By, since, until time.Time) (map[string]Counts, error) {
	tenants, err := b.tenants(ctx)
	if err != nil {
		return nil, err
	}
	sums := map[string]Counts{}
	for _, of := range tenants {
		front := ""
		if (by == ByChat || by == ByUser) && of != (memory.Tenant{}) {
			front = of.String() + "/"
		}
		rows := map[Row]Counts{} // by day and name: a row may come twice
		for q := (Query{Tenant: of, By: by, Since: since, Until: until}); ; {
			page, err := b.Read(ctx, q)
			if err != nil {
				return nil, err
			}
			for _, row := range page.Rows {
				rows[Row{Day: row.Day, Name: row.Name}] = row.Counts
			}
			if q.Cursor = page.Next; q.Cursor == "" {
				break
			}
		}
		for row, n := range rows {
			sum := sums[front+row.Name]
			sum.Add(n)
			sums[front+row.Name] = sum
		}
	}
	return sums, nil
}

// tenants are the default one and all of which a key was used.
func (b *Book) tenants(ctx context.Context) ([]memory.Tenant, error) {
	found := map[memory.Tenant]bool{{}: true}
	if b.redis == nil {
		b.own.each(func(at place, _ Counts) { found[at.tenant] = true })
		return slices.Collect(maps.Keys(found)), nil
	}
	names, err := b.redis.ZRange(ctx, string(memory.KindTenants), 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("listing the tenants: %w", err)
	}
	for _, name := range names {
		if t, err := memory.ParseTenant(name); err == nil {
			found[t] = true
		}
	}
	return slices.Collect(maps.Keys(found)), nil
}

// maxOwn is how many counters a process without Redis has. Further names are in the sums alone, until the next day.
const maxOwn = 10_000

// own are the counters of a process without Redis.
type own struct {
	mu     sync.Mutex
	counts map[place]Counts // guarded by mu
	swept  string           // the day on which those of earlier days were left out last; guarded by mu
}

// place is where a counter stands.
type place struct {
	tenant memory.Tenant
	day    string
	by     By
	name   string
}

// Add counts a call, for a book without Redis.
func (b *Book) Add(c Call) {
	o, day := &b.own, c.At.UTC().Format(time.DateOnly)
	c.Counts.Calls = 1
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.counts) >= maxOwn && o.swept < day { // once a day, since it looks at all of them
		o.swept = day
		maps.DeleteFunc(o.counts, func(at place, _ Counts) bool { return at.day < day })
	}
	for by, name := range c.Names {
		at := place{c.Tenant, day, by, name}
		sum, known := o.counts[at]
		if !known {
			at.name = strings.Clone(name) // it may be a part of a large body
		}
		if known || len(o.counts) < maxOwn || by == ByTenant {
			sum.Add(c.Counts)
			o.counts[at] = sum
		}
	}
}

func (o *own) each(do func(place, Counts)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for at, n := range o.counts {
		do(at, n)
	}
}

// rows are those of some days.
func (o *own) rows(q Query, days []string) []Row {
	rows := []Row{}
	o.each(func(at place, n Counts) {
		if at.tenant == q.Tenant && at.by == q.By && slices.Contains(days, at.day) && (q.Name == "" || at.name == q.Name) {
			rows = append(rows, Row{at.day, at.name, n})
		}
	})
	return rows
}

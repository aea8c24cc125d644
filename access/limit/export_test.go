package limit

import (
	"time"

	"mneme/access/tally"
)

// Books is the part that the scripts share.
var Books = func() string {
	text, err := lua.ReadFile("lua/books.lua")
	if err != nil {
		panic(err)
	}
	return string(text)
}()

// Age makes the charges that are kept older, if there are so many.
func (l *Limiter) Age(many int, by time.Duration) bool {
	l.charges.mu.Lock()
	defer l.charges.mu.Unlock()
	if len(l.charges.stored) != many {
		return false
	}
	older := func(c charge) charge { c.queuedAt = c.queuedAt.Add(-by); return c }
	for i, c := range l.charges.stored {
		l.charges.stored[i] = older(c)
	}
	for head, c := range l.charges.newest {
		l.charges.newest[head] = older(c)
	}
	return true
}

// Kept returns the number of charges that Redis acknowledged to this process and that are kept.
func (l *Limiter) Kept() int {
	l.charges.mu.Lock()
	defer l.charges.mu.Unlock()
	return len(l.charges.stored)
}

// Lost has all charges that are kept written again, as when a loss is found.
func (l *Limiter) Lost() { l.charges.rewrite() }

// Charge commits what a call took.
func (l *Limiter) Charge(r Reservation, a Amount) {
	if r.id != "" {
		l.Commit(r, tally.Call{Time: time.Now(), Request: r.id, Tenant: r.tenant,
			Key: r.enclosing[0].name, User: r.enclosing[2].name,
			Counts: tally.Counts{Input: a.Tokens, Micros: a.Micros}})
	}
}

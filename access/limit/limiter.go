package limit

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"mneme/access"
	"mneme/memory/redisscript"
)

//go:embed lua
var lua embed.FS

var (
	reserve = redisscript.New(lua, "books", "reserve")
	commit  = redisscript.New(lua, "books", "commit")
)

// Prefix is how every key of this package begins in Redis; the tenant follows, in braces.
const Prefix = "mneme:limits:"

// Unclosed says what becomes of a reservation whose lease ends before its commit.
type Unclosed string

// The policies.
const (
	ChargeEstimate Unclosed = "estimate" // the call may have cost all of it
	Release        Unclosed = "release"  // nothing is charged
)

// Away says what becomes of calls while Redis does not answer.
type Away string

// The policies.
const (
	Refuse Away = "refuse"
	Allow  Away = "allow"
)

// ErrAway is the error of a call that could not be judged, since Redis does not answer.
var ErrAway = errors.New("the budgets cannot be read, since Redis does not answer")

// Options are what a Limiter goes by. A zero value means its default.
type Options struct {
	Tenants   map[string]access.Limits // by their names
	Users     access.Limits            // of each user of any tenant
	Lease     time.Duration            // after which a call counts as dead; 10 min
	Unclosed  Unclosed                 // ChargeEstimate
	Away      Away                     // Refuse
	AwayCalls int64                    // with Allow: how many calls a process lets pass in one outage; 100
	Patience  time.Duration            // for Redis's answer; 2 s
	Log       zerolog.Logger
}

// Limiter admits calls. It is safe for concurrent use.
type Limiter struct {
	redis   redis.UniversalClient
	options Options

	mu      sync.Mutex
	waiting []charge // not in the books yet, the oldest first
	closed  bool
	away    int64 // calls that went on since Redis was there last

	wake    chan struct{} // something waits; of size 1
	closing chan struct{}
	done    chan struct{} // the writer has ended
	ctx     context.Context
	cancel  context.CancelFunc
}

// New makes a limiter over client, which the caller closes after it. It starts one goroutine, which Close stops.
func New(client redis.UniversalClient, o Options) *Limiter {
	o.Lease, o.Patience = cmp.Or(o.Lease, 10*time.Minute), cmp.Or(o.Patience, 2*time.Second)
	o.Unclosed, o.Away, o.AwayCalls = cmp.Or(o.Unclosed, ChargeEstimate), cmp.Or(o.Away, Refuse), cmp.Or(o.AwayCalls, 100)
	l := &Limiter{redis: client, options: o,
		wake: make(chan struct{}, 1), closing: make(chan struct{}), done: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	go l.write()
	return l
}

// Amount is what a call takes.
type Amount struct {
	Tokens int64 // input and output
	Micros int64 // millionths of a USD; 0 where the price is not known
}

// clamp keeps amounts within what the books can hold.
func (a Amount) clamp() Amount {
	return Amount{min(max(a.Tokens, 0), access.Most), min(max(a.Micros, 0), access.Most)}
}

// Standing is how far a rate or a budget is used: of all that bound a call, the one of which the smallest share
// remains.
type Standing struct {
	Limit     int64
	Remaining int64
	Reset     time.Duration // until it is unused again; 0 for a total
}

// bound is one limit of one holder.
type bound struct {
	holder string // such as "key k1"
	field  string // in Redis
	rate   access.Rate
	budget access.Budget // its N is 0 if the bound is a rate
}

func (b bound) limit() int64 { return cmp.Or(b.budget.N, b.rate.N) }

// args are the five words that the scripts read.
func (b bound) args() []any {
	switch {
	case b.budget.N != 0:
		return []any{"budget", b.field + ":" + string(b.budget.Of), string(b.budget.Of), b.budget.N, string(b.budget.Period)}
	case b.rate.Of == access.AtOnce:
		return []any{"atonce", b.field, string(b.rate.Of), b.rate.N, ""}
	}
	return []any{"rate", b.field + ":" + string(b.rate.Of), string(b.rate.Of), b.rate.N, b.rate.Per.Microseconds()}
}

// bounds are all limits that enclose a call, those that are full for longest first: budgets, then rates.
func (l *Limiter) bounds(p access.Principal) []bound {
	var all []bound
	add := func(kind, name string, limits access.Limits) {
		if name == "" {
			return
		}
		for _, b := range limits.Budget {
			all = append(all, bound{holder: kind + " " + name, field: kind + ":" + name, budget: b})
		}
		for _, r := range limits.Rate {
			all = append(all, bound{holder: kind + " " + name, field: kind + ":" + name, rate: r})
		}
	}
	tenant := p.Tenant.String()
	add("key", p.Key, p.Limits)
	add("tenant", tenant, l.options.Tenants[tenant])
	add("user", p.User, l.options.Users)
	slices.SortStableFunc(all, func(a, b bound) int { return cmp.Compare(b.budget.N, 0) - cmp.Compare(a.budget.N, 0) })
	return all
}

// Limited says whether anything bounds the calls of p. If not, Redis is asked nothing for them.
func (l *Limiter) Limited(p access.Principal) bool {
	return !p.Limits.None() && p.Key != "" || !l.options.Tenants[p.Tenant.String()].None() ||
		p.User != "" && !l.options.Users.None()
}

// Reservation is a call that was admitted. The zero value is of a call that nothing bounds.
type Reservation struct {
	Standing Standing // its Limit is 0 if nothing is known of it

	limiter    *Limiter
	head       string
	id         string
	unreserved bool // Redis was away
	bounds     []bound
}

// Reserve admits a call of p that may take so much, or says why not: the error is a *Refusal, or ErrAway, or the
// context's. The id is that of the call: one that comes again is admitted again and counted once. Whoever gets a
// reservation commits it.
func (l *Limiter) Reserve(ctx context.Context, p access.Principal, id string, estimate Amount) (Reservation, error) {
	if !l.Limited(p) {
		return Reservation{}, nil
	}
	estimate = estimate.clamp()
	r := Reservation{limiter: l, head: Prefix + "{" + p.Tenant.String() + "}", id: id, bounds: l.bounds(p)}
	args := []any{id, l.options.Lease.Milliseconds(), estimate.Tokens, estimate.Micros, string(l.options.Unclosed)}
	for _, b := range r.bounds {
		args = append(args, b.args()...)
	}
	within, cancel := context.WithTimeout(ctx, l.options.Patience)
	defer cancel()
	reply, err := redisscript.Read(reserve.Run(within, l.redis, []string{r.head}, args...))
	if err != nil {
		return l.unjudged(ctx, r, err)
	}
	l.answers()
	if reply.Word() == "refused" {
		return Reservation{}, refusal(r.bounds, reply, estimate)
	}
	r.Standing = standing(r.bounds, reply)
	return r, nil
}

// unjudged is Reserve where Redis gave no answer. What it did may have been done all the same, so the reservation is
// taken back whenever Redis is there again.
func (l *Limiter) unjudged(ctx context.Context, r Reservation, err error) (Reservation, error) {
	r.unreserved = true
	if ctx.Err() != nil {
		r.void()
		return Reservation{}, context.Cause(ctx)
	}
	l.options.Log.Warn().Err(err).Str("when_away", string(l.options.Away)).Msg("a call's budgets could not be read")
	l.mu.Lock()
	pass := l.options.Away == Allow && l.away < l.options.AwayCalls
	if pass {
		l.away++
	}
	l.mu.Unlock()
	if !pass {
		r.void()
		return Reservation{}, ErrAway
	}
	return r, nil
}

// answers notes that Redis is there.
func (l *Limiter) answers() {
	l.mu.Lock()
	l.away = 0
	l.mu.Unlock()
}

// Commit charges what the call took: in the background, and once. Of a reservation that holds nothing it does nothing.
func (r Reservation) Commit(actual Amount) {
	if r.limiter != nil {
		r.limiter.put(charge{Reservation: r, actual: actual.clamp()})
	}
}

// void takes the reservation back.
func (r Reservation) void() {
	r.unreserved = false // if nothing was reserved there is nothing to be charged
	r.Commit(Amount{})
}

// standing is the tightest of what the script answered for each bound.
func standing(bounds []bound, reply redisscript.Reply) (s Standing) {
	share := 2.0
	for i, b := range bounds {
		remaining, bad := strconv.ParseInt(reply.At(1+2*i), 10, 64)
		if bad != nil || b.budget.N == 0 && b.rate.Of == access.AtOnce {
			continue
		}
		if left := float64(remaining) / float64(b.limit()); left < share {
			share = left
			reset, _ := strconv.ParseInt(reply.At(2+2*i), 10, 64)
			s = Standing{b.limit(), remaining, time.Duration(reset) * time.Second}
			if b.budget.N == 0 {
				s.Reset = time.Duration(reset) * time.Microsecond
			}
		}
	}
	return s
}

// Refusal is the error of a call for which a limit has no room. Its text is for the caller: all of it is of the
// caller's own key, tenant or user.
type Refusal struct {
	Standing   Standing
	RetryAfter time.Duration // 0: waiting does not help
	Budget     bool          // it is a budget's; else a rate's
	message    string
}

func (r *Refusal) Error() string { return r.message }

func refusal(bounds []bound, reply redisscript.Reply, estimate Amount) *Refusal {
	number := func(i int) int64 {
		n, _ := strconv.ParseInt(reply.At(i), 10, 64)
		return n
	}
	i := int(number(1)) - 1
	if i < 0 || i >= len(bounds) {
		return &Refusal{message: "a limit has no room for this call"}
	}
	b := bounds[i]
	if b.budget.N != 0 {
		return b.overBudget(number(2), number(3), number(4), estimate)
	}
	r := &Refusal{Standing: Standing{Limit: b.rate.N}}
	if b.rate.Of == access.AtOnce {
		r.RetryAfter = time.Second
		r.message = fmt.Sprintf("the %s may have %d calls of models run at once, and has: try again when one has ended",
			b.holder, b.rate.N)
		return r
	}
	wait := number(2)
	if wait < 0 {
		r.message = fmt.Sprintf("this call may take %d tokens, more than the rate of the %s ever allows at once (%s): "+
			"send less, or ask for a shorter answer by max_tokens", estimate.Tokens, b.holder, b.rate)
		return r
	}
	r.RetryAfter = time.Duration(wait) * time.Microsecond
	r.Standing.Reset = r.RetryAfter
	r.message = fmt.Sprintf("the rate of the %s is used up (%s): try again in %s", b.holder, b.rate, seconds(r.RetryAfter))
	return r
}

// overBudget says what is spent and reserved of a budget that has no room, and when it resets.
func (b bound) overBudget(spent, held, ends int64, estimate Amount) *Refusal {
	cost, amount := estimate.Tokens, func(n int64) string { return strconv.FormatInt(n, 10) + " tokens" }
	if b.budget.Of == access.USD {
		cost, amount = estimate.Micros, func(n int64) string { return access.Dollars(n) + " USD" }
	}
	r := &Refusal{Budget: true, Standing: Standing{Limit: b.budget.N, Remaining: max(0, b.budget.N-spent-held)}}
	r.message = fmt.Sprintf("the budget of the %s has no room for this call: of %s, %s are spent, calls that run hold %s "+
		"and this one may take %s", b.holder, b.budget, amount(spent), amount(held), amount(cost))
	switch {
	case cost > b.budget.N:
		r.message += "; it is more than the whole budget: send less, or ask for a shorter answer by max_tokens"
		return r
	case held > 0 && spent+cost <= b.budget.N:
		r.RetryAfter = time.Second
		r.message += "; try again when they have ended"
	}
	if ends > 0 {
		at := time.Unix(ends, 0).UTC()
		r.Standing.Reset = max(0, time.Until(at))
		r.RetryAfter = cmp.Or(r.RetryAfter, r.Standing.Reset)
		r.message += "; it resets on " + at.Format("2006-01-02 15:04") + " UTC"
	}
	return r
}

// seconds is a time in whole seconds, rounded up.
func seconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10) + " s"
}

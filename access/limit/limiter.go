package limit

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"mneme/access"
	"mneme/access/tally"
	"mneme/memory"
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

// Unclosed says what becomes of a reservation if its lease ends before its commit.
type Unclosed string

// The policies.
const (
	ChargeEstimate Unclosed = "estimate" // the call may have cost all of it
	Release        Unclosed = "release"  // nothing is charged
)

// OutagePolicy selects how calls are treated while Redis is unavailable.
type OutagePolicy string

// The policies.
const (
	Refuse OutagePolicy = "refuse"
	Allow  OutagePolicy = "allow"
)

// ErrAway is the error of a call that could not be judged, since Redis does not answer.
var ErrAway = errors.New("the limits cannot be read, since Redis does not answer")

// Bounds are the limits that are no key's.
type Bounds struct {
	Tenants   map[string]access.Limits // by their names
	EachOther access.Limits            // of each tenant that Tenants does not name, but for the default one
	Users     access.Limits            // of each user of any tenant
}

// Options are what a Limiter goes by. A zero value means its default.
type Options struct {
	Bounds
	Lease        time.Duration // time after which a call counts as dead; 10 min
	Unclosed     Unclosed      // ChargeEstimate
	OutagePolicy OutagePolicy  // Refuse
	AwayCalls    int64         // with Allow: how many calls a process lets pass in one outage; 100
	Patience     time.Duration // for Redis's answer; 2 s
	RunLease     time.Duration // time after which a run of a dead process no longer counts; 30 s
	Keep         time.Duration // for which counters are kept; tally.Keep
	Log          zerolog.Logger
}

// Limiter admits calls, and keeps the books of what they took. It is safe for concurrent use.
type Limiter struct {
	redis   redis.UniversalClient  // nil: nothing is limited, and what calls took is known in this process alone
	options Options                // without Bounds, which are in bounds
	bounds  atomic.Pointer[Bounds] // see Bind

	Usage    *tally.Book  // what calls took
	Restored atomic.Int64 // calls that Redis had lost and took again

	outageCalls atomic.Int64 // calls that came since Redis was there last, and could not be judged
	charges     charges
	running     running
	trips       trips

	closing chan struct{}
	done    chan struct{} // the writer has ended
	ctx     context.Context
	cancel  context.CancelFunc
}

// New makes a limiter over client, which the caller closes after it; nil for one that limits nothing, counts for this
// process and needs no Close. Else it starts one goroutine, which Close stops.
func New(client redis.UniversalClient, o Options) *Limiter {
	o.Lease, o.Patience = cmp.Or(o.Lease, 10*time.Minute), cmp.Or(o.Patience, 2*time.Second)
	o.Unclosed, o.OutagePolicy, o.AwayCalls = cmp.Or(o.Unclosed, ChargeEstimate), cmp.Or(o.OutagePolicy, Refuse),
		cmp.Or(o.AwayCalls, 100)
	o.RunLease, o.Keep = cmp.Or(o.RunLease, runLease), cmp.Or(o.Keep, tally.Keep)
	l := &Limiter{redis: client, options: o, Usage: tally.New(client, o.Keep), running: running{active: map[*Run]bool{}},
		charges: charges{log: o.Log, keep: o.Keep, wake: make(chan struct{}, 1), newest: map[memory.Tenant]charge{}},
		closing: make(chan struct{}), done: make(chan struct{})}
	Bind(l, o.Bounds)
	l.ctx, l.cancel = context.WithCancel(context.Background())
	if client == nil {
		close(l.done)
	} else {
		go l.write()
	}
	return l
}

// Bind has other bounds hold for what is asked from here on. What was admitted before counts in their rates and budgets.
func Bind(l *Limiter, bounds Bounds) { l.bounds.Store(&bounds) }

// Amount is what a call may take.
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

// holder is an owner of limits: a key, a tenant or a user.
type holder struct {
	kind, name string
	limits     access.Limits
}

func (h holder) String() string { return h.kind + " " + h.name }

// field is how the holder is called in Redis; empty for none.
func (h holder) field() string {
	if h.name == "" {
		return ""
	}
	return h.kind + ":" + h.name
}

// bound is one limit of one holder.
type bound struct {
	holder int // its index
	rate   access.Rate
	budget access.Budget // its N is 0 if the bound is a rate
}

func (b bound) limit() int64 { return cmp.Or(b.budget.N, b.rate.N) }

// append adds the five words that the scripts read.
func (b bound) append(text []byte) []byte {
	holder := b.holder + 1
	switch {
	case b.budget.N != 0:
		return fmt.Appendf(text, "%d budget %s %d %s ", holder, b.budget.Unit, b.budget.N, b.budget.Period)
	case b.rate.Per == 0:
		return fmt.Appendf(text, "%d %s %[2]s %d - ", holder, b.rate.Unit, b.rate.N)
	}
	return fmt.Appendf(text, "%d rate %s %d %d ", holder, b.rate.Unit, b.rate.N, b.rate.Per.Microseconds())
}

// enclosing are all limits that enclose a call: those of its key, its tenant and its user.
type enclosing []holder

func (l *Limiter) enclosing(p access.Principal) enclosing {
	bounds := l.bounds.Load()
	holders := enclosing{{"key", p.Key, p.Limits}, {"tenant", p.Tenant.String(), bounds.ofTenant(p.Tenant)},
		{"user", p.User, bounds.Users}}
	for i := range holders {
		if holders[i].name == "" {
			holders[i].limits = access.Limits{}
		}
	}
	return holders
}

// bounds are the limits of calls, those that are full for longest first: budgets, then rates.
func (e enclosing) bounds(yield func(bound) bool) {
	for i, h := range e {
		for _, b := range h.limits.Budget {
			if !yield(bound{holder: i, budget: b}) {
				return
			}
		}
	}
	for i, h := range e {
		for _, r := range h.limits.Rate {
			if r.Unit != access.Runs && !yield(bound{holder: i, rate: r}) {
				return
			}
		}
	}
}

// nth is a bound by its number, from 1 as the scripts count them.
func (e enclosing) nth(number int64) (match bound, ok bool) {
	for b := range e.bounds {
		if number--; number == 0 {
			return b, true
		}
	}
	return bound{}, false
}

// append adds what the scripts read: the limits in one text, which takes less than a word for each, and the holders.
func (e enclosing) append(words []any) []any {
	text := make([]byte, 0, 256)
	for b := range e.bounds {
		text = b.append(text)
	}
	words = append(words, string(text))
	for _, h := range e {
		words = append(words, h.field())
	}
	return words
}

// Limited says whether anything bounds the calls of p. If not, Redis is asked nothing for them.
func (l *Limiter) Limited(p access.Principal) bool {
	bounds := l.bounds.Load()
	return l.redis != nil && (p.Key != "" && ofCalls(p.Limits) || ofCalls(bounds.ofTenant(p.Tenant)) ||
		p.User != "" && ofCalls(bounds.Users))
}

// ofTenant are the limits of a tenant.
func (b *Bounds) ofTenant(t memory.Tenant) access.Limits {
	limits, ok := b.Tenants[t.String()]
	if !ok && t != (memory.Tenant{}) {
		return b.EachOther
	}
	return limits
}

// Stored returns how many bytes a tenant may store, 0 for any number. A nil Limiter bounds none.
func (l *Limiter) Stored(t memory.Tenant) int64 {
	if l == nil {
		return 0
	}
	return l.bounds.Load().ofTenant(t).Stored
}

// ofCalls says whether limits bound calls of models, and not runs alone.
func ofCalls(limits access.Limits) bool {
	return len(limits.Budget) > 0 ||
		slices.ContainsFunc(limits.Rate, func(r access.Rate) bool { return r.Unit != access.Runs })
}

// Spends says whether anything bounds the tokens that the calls of p take, or the money.
func (l *Limiter) Spends(p access.Principal) (tokens, money bool) {
	for b := range l.enclosing(p).bounds {
		tokens = tokens || b.budget.N != 0 || b.rate.Unit == access.Tokens
		money = money || b.budget.Unit == access.USD
	}
	return tokens, money
}

// head is how the keys of a tenant begin.
func head(t memory.Tenant) string { return Prefix + "{" + t.String() + "}" }

// Reservation is a call that was admitted. The zero value is of a call that nothing bounds.
type Reservation struct {
	Standing Standing // its Limit is 0 if nothing is known of it

	tenant     memory.Tenant
	id         string
	hour       string // under which the end of the call is remembered
	unreserved bool   // Redis was away
	losses     int64  // of which Redis may have forgotten it: all that are found from then on
	enclosing  enclosing
}

// Reserve admits a call of p that may take so much, or says why not: the error is a *Refusal, or ErrAway, or the
// context's. The id is that of the call: one that comes again is admitted again and counted once, and if it may take
// more than before, it is admitted if there is room for the rest. A caller that gets a reservation commits it, once
// an id.
func (l *Limiter) Reserve(ctx context.Context, p access.Principal, id string, estimate Amount) (Reservation, error) {
	if !l.Limited(p) {
		return Reservation{}, nil
	}
	estimate = estimate.clamp()
	r := Reservation{tenant: p.Tenant, id: id, hour: hourOf(time.Now()), enclosing: l.enclosing(p)}
	for tries := 0; ; {
		newest, losses, settled := l.charges.state(r.tenant)
		wait := time.Until(settled)
		if wait <= 0 {
			r.losses = losses
			args := append(r.args(newest, estimate, l.options.Keep, true),
				l.options.Lease.Milliseconds(), string(l.options.Unclosed))
			reply, err := l.ask(ctx, redisscript.Call{Script: reserve, Keys: r.keys(), Args: args})
			if err != nil {
				return l.unjudged(ctx, r, err)
			}
			l.outageCalls.Store(0)
			switch reply.Word() {
			case "lost":
				l.charges.rewrite()
				continue
			case "refused":
				no := r.enclosing.refusal(reply, estimate)
				if !no.atOnce || tries == len(leaving) {
					return Reservation{}, no
				}
				wait, tries = leaving[tries], tries+1
			default:
				r.Standing = r.enclosing.standing(reply)
				return r, nil
			}
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return Reservation{}, context.Cause(ctx)
		}
	}
}

// leaving are the pauses after which a call is judged again that too many others run beside: another gateway says that one
// has ended a moment after its client knows.
var leaving = []time.Duration{gather + 5*time.Millisecond, 6 * gather}

// unjudged is Reserve where Redis gave no answer. What it did may have been done all the same, so the reservation is
// taken back whenever Redis is there again.
func (l *Limiter) unjudged(ctx context.Context, r Reservation, err error) (Reservation, error) {
	r.unreserved = true
	if ctx.Err() == nil && l.passes(err) {
		return r, nil
	}
	l.Commit(r, tally.Call{})
	return Reservation{}, cmp.Or(context.Cause(ctx), ErrAway)
}

// passes says whether one more goes on although Redis does not answer.
func (l *Limiter) passes(err error) bool {
	l.options.Log.Warn().Err(err).Str("when_away", string(l.options.OutagePolicy)).Msg("limits could not be read")
	return l.options.OutagePolicy == Allow && l.outageCalls.Add(1) <= l.options.AwayCalls
}

// Commit puts what a call took into the books, in the background, and once: in the place of what was reserved for it, if
// anything bounds it, and into the counters. An empty call says that none came of the reservation.
func (l *Limiter) Commit(r Reservation, c tally.Call) {
	c.Counts.Calls = 1
	if l.redis != nil && (r.id != "" || c.Request != "") {
		l.charges.put(charge{Reservation: r, call: c})
	}
}

// Dropped counts calls that are in no counter, since Redis did not take them in time.
func (l *Limiter) Dropped() int64 { return l.charges.dropped.Load() }

// number is a part of a reply; 0 if it is none.
func number(reply redisscript.Reply, i int) int64 {
	n, _ := strconv.ParseInt(reply.Part(i), 10, 64)
	return n
}

// standing is that of the tightest bound, which the script names.
func (e enclosing) standing(reply redisscript.Reply) Standing {
	b, ok := e.nth(number(reply, 1))
	if !ok {
		return Standing{}
	}
	unit := time.Second
	if b.budget.N == 0 {
		unit = time.Microsecond
	}
	return Standing{b.limit(), number(reply, 2), time.Duration(number(reply, 3)) * unit}
}

// Refusal is the error of a call for which a limit has no room. Its text is for the caller: all of it is of the
// caller's own key, tenant or user.
type Refusal struct {
	Standing   Standing
	RetryAfter time.Duration // 0: waiting does not help
	Budget     bool          // it is a budget's; else a rate's
	atOnce     bool          // of calls that run at the same time
	message    string
}

func (r *Refusal) Error() string { return r.message }

func (e enclosing) refusal(reply redisscript.Reply, estimate Amount) *Refusal {
	b, ok := e.nth(number(reply, 1))
	if !ok {
		return &Refusal{message: "a limit has no room for this call"}
	}
	holder := e[b.holder]
	if b.budget.N != 0 {
		return overBudget(holder, b.budget, number(reply, 2), number(reply, 3), number(reply, 4), estimate)
	}
	r := &Refusal{Standing: Standing{Limit: b.rate.N}}
	if b.rate.Unit == access.AtOnce {
		r.RetryAfter, r.atOnce = time.Second, true
		r.message = fmt.Sprintf("the %s may have %d calls of models run at once, and has: try again when one has ended",
			holder, b.rate.N)
		return r
	}
	wait := number(reply, 2)
	if wait < 0 {
		r.message = fmt.Sprintf("this call may take %d tokens, more than the rate of the %s ever allows at once (%s): "+
			"send less, or ask for a shorter answer by max_tokens", estimate.Tokens, holder, b.rate)
		return r
	}
	r.RetryAfter = time.Duration(wait) * time.Microsecond
	r.Standing.Reset = r.RetryAfter
	r.message = fmt.Sprintf("the rate of the %s is used up (%s): try again in %s", holder, b.rate, seconds(r.RetryAfter))
	return r
}

// overBudget says what is spent and reserved of a budget that has no room, and when it resets.
func overBudget(holder holder, b access.Budget, spent, reserved, resetUnix int64, estimate Amount) *Refusal {
	cost, amount := estimate.Tokens, func(n int64) string { return strconv.FormatInt(n, 10) + " tokens" }
	if b.Unit == access.USD {
		cost, amount = estimate.Micros, func(n int64) string { return access.Dollars(n) + " USD" }
	}
	r := &Refusal{Budget: true, Standing: Standing{Limit: b.N, Remaining: max(0, b.N-spent-reserved)}}
	r.message = fmt.Sprintf("the budget of the %s has no room for this call: of %s, %s are spent, calls that run hold %s "+
		"and this one may take %s", holder, b, amount(spent), amount(reserved), amount(cost))
	switch {
	case cost > b.N:
		r.message += "; it is more than the whole budget: send less, or ask for a shorter answer by max_tokens"
		return r
	case reserved > 0 && spent+cost <= b.N:
		r.RetryAfter = time.Second
		r.message += "; try again when they have ended"
	}
	if resetUnix > 0 {
		reset := time.Unix(resetUnix, 0).UTC()
		r.Standing.Reset = max(0, time.Until(reset))
		r.RetryAfter = cmp.Or(r.RetryAfter, r.Standing.Reset)
		r.message += "; it resets on " + reset.Format("2006-01-02 15:04") + " UTC"
	}
	return r
}

// seconds is a time in whole seconds, rounded up.
func seconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10) + " s"
}

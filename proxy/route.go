package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"mneme/proxy/ledger"
	"mneme/proxy/thinking"
	"mneme/proxy/upstream"
	"mneme/proxy/wire"
)

// RouteConfig describes a route: backends of which one answers, in the order in which they are asked.
type RouteConfig struct {
	Use  []string         // names of backends, the first choice first
	Keys map[string][]Key // of a backend of Use: the keys that it is asked with, in place of its own
}

// Key is one of several keys of a backend.
type Key struct{ Name, Value string } // the name of the variable that holds it, and what that holds

// routeFaults are sentences about the routes, each with the setting's name.
func (c Config) routeFaults() (faults []error) {
	for _, name := range slices.Sorted(maps.Keys(c.Routes)) {
		r, key := c.Routes[name], "proxy.routes."+name
		if _, exists := c.Backends[name]; exists {
			faults = append(faults, fmt.Errorf("%s: a backend has this name: choose another one for the route", key))
		}
		if len(r.Use) == 0 {
			faults = append(faults, fmt.Errorf("%s.use is empty: name the backends that answer, the first choice first", key))
		}
		for i, b := range r.Use {
			_, ok := c.Backends[b]
			if !ok || slices.Contains(r.Use[:i], b) {
				faults = append(faults, fmt.Errorf("%s.use: %q must be one of proxy.backends (%s), and named once", key, b,
					c.backendNames()))
			}
		}
		for _, b := range slices.Sorted(maps.Keys(r.Keys)) {
			switch {
			case !slices.Contains(r.Use, b):
				faults = append(faults, fmt.Errorf("%s.keys names %q, which is not in its use", key, b))
			case !c.Backends[b].remote() || c.Backends[b].Auth != "" && c.Backends[b].Auth != upstream.AuthKey:
				faults = append(faults, fmt.Errorf("%s.keys.%s: the backend takes no key of ours", key, b))
			case slices.ContainsFunc(r.Keys[b], func(k Key) bool { return k.Value == "" }):
				faults = append(faults, fmt.Errorf("%s.keys.%s has an empty key", key, b))
			}
		}
	}
	return faults
}

// route is where requests go: its choices, one after the other until one answers. A backend alone is a route of one.
type route struct {
	name    string
	choices []choice
}

// choice is a backend of a route, with one of its keys.
type choice struct {
	*backend
	rank int // place of the backend in the route; keys of one backend have the same
}

// openRoutes makes the routes, once the backends are there.
func openRoutes(s *Server) error {
	for name, b := range s.backends {
		s.routed[name] = &route{name, []choice{{b, 0}}}
	}
	for name, config := range s.config.Routes {
		r := &route{name: name}
		for rank, use := range config.Use {
			keys := config.Keys[use]
			if len(keys) == 0 {
				r.choices = append(r.choices, choice{s.backends[use], rank})
			}
			for _, key := range keys {
				b, err := withKey(s, s.backends[use], key)
				if err != nil {
					return err
				}
				r.choices = append(r.choices, choice{b, rank})
			}
		}
		s.routed[name] = r
	}
	return nil
}

// withKey is a backend with another key. What was learned of its models holds for all its keys; but thinking may be
// bound to the account of a key, so that turns are another backend's for the ledger.
func withKey(s *Server, base *backend, key Key) (*backend, error) {
	if key.Name == base.config.KeyName {
		return base, nil
	}
	name := base.name + ":" + key.Name
	if b := s.keyed[name]; b != nil {
		return b, nil
	}
	config := base.config
	config.APIKey, config.KeyName = key.Value, key.Name
	b, err := s.open(name, config)
	if err != nil {
		return nil, err
	}
	b.secrets, b.knowledge, b.windows, b.lists = base.secrets, base.knowledge, base.windows, base.lists
	s.keyed[name] = b
	return b, nil
}

// activeRoute is the main pipeline's.
func (s *Server) activeRoute(ctx context.Context) *route {
	if r := s.routed[s.active.Name(ctx)]; r != nil {
		return r
	}
	return s.routed[s.config.Active]
}

// teammateRoute is a teammate's, which the configuration names.
func (s *Server) teammateRoute(name string) *route {
	if r, ok := s.teammates[name]; ok {
		return r
	}
	return s.teammateDefault
}

// names are those of its choices.
func (r *route) names() (names []string) {
	for _, c := range r.choices {
		names = append(names, c.name)
	}
	return names
}

// first is the backend of the first choice, whose models clients are shown.
func (r *route) first() *backend { return r.choices[0].backend }

// errUnfit indicates that mneme refused a request because the backend of one choice cannot take it. No backend was asked.
type errUnfit struct{ error }

func (e errUnfit) Unwrap() error { return e.error }

// outcome is the result of one choice of a route.
type outcome struct {
	attempt *attempt
	err     error
	request scopedRequest // the request as the result describes it
	failed  bool          // the choice was asked, and has failed
}

// answerBy asks the choices of a route until one answers or refuses what the request says. It skips a choice that cannot
// take the request. Nothing has been written to the client yet. If all choices fail, the client gets the error of the
// first one that was asked, so that it can retry as it would without the route.
func answerBy(ctx context.Context, s *Server, x *request, r *route, scope string, thinks restore) (*attempt, error) {
	if len(r.choices) == 1 {
		return ask(ctx, s, x.route(r.first()), scope, thinks)
	}
	order := r.order(ctx, s, x, scope)
	x.result.until = time.Now().Add(cmp.Or(s.limits.Upstream.Total, upstream.DefaultTotal))
	var first *outcome
	for i := 0; ; i++ {
		b := order[i]
		x.result.others = i < len(order)-1
		a, err := ask(ctx, s, x.route(b), scope, thinks)
		why := x.moves(ctx, a, err)
		switch {
		case why == reasonUnfit:
		case why != "":
			b.failed(why, a, s.limits.Return)
		case first == nil || !first.failed || !x.refuses(ctx, a, err):
			return a, err
		default:
			why = reasonRejected // of what only this choice refuses, since another one was asked before
		}
		if failed := why != reasonUnfit; first == nil || failed && !first.failed {
			first = &outcome{a, err, x.result.scopedRequest, failed}
		}
		if a != nil && a.answer != nil {
			a.answer.close() // all of it has been read
		}
		if !x.result.others || time.Until(x.result.until) <= 0 || ctx.Err() != nil {
			return first.restore(x)
		}
		x.result.attempt = nil
		s.metrics.moved(b, why)
		x.often.Warn().Str("request_id", x.id).EmbedObject(x.trail).Str("route", r.name).Str("backend", b.name).
			Str("to", order[i+1].name).Str("reason", string(why)).Msg("the next backend of the route is asked")
	}
}

// restore makes o the outcome of the request.
func (o *outcome) restore(x *request) (*attempt, error) {
	x.result.scopedRequest, x.result.attempt = o.request, o.attempt
	o.request.tellWindow()
	return o.attempt, o.err
}

// refuses reports whether a backend has refused a request that another one may take.
func (x *request) refuses(ctx context.Context, a *attempt, err error) bool {
	return ctx.Err() == nil && !x.client.started && err == nil && a.answer.refused()
}

// ask has one backend answer.
func ask(ctx context.Context, s *Server, r routedRequest, scope string, thinks restore) (*attempt, error) {
	resolved, err := s.read(ctx, r, scope)
	if err != nil {
		return nil, err
	}
	return s.attempts(ctx, resolved, thinks)
}

// moves returns the reason to ask another backend because this one failed or cannot take the request. It returns "" if
// the backend has answered, or has refused a request that every backend would refuse.
func (x *request) moves(ctx context.Context, a *attempt, err error) reason {
	switch {
	case ctx.Err() != nil || x.client.started:
		return ""
	case errors.As(err, new(errUnfit)):
		return reasonUnfit
	case err != nil:
		for _, failure := range []error{upstream.ErrUnreachable, upstream.ErrBroken, upstream.ErrTimeout, upstream.ErrOpen,
			upstream.ErrEncoding} {
			if errors.Is(err, failure) {
				return reasonDown
			}
		}
		return ""
	case !a.answer.refused():
		return ""
	}
	switch why := a.reasonOf(wire.ReadFailure(a.answer.errorStatus(), a.answer.content)); why {
	case reasonDown, reasonRate, reasonAllowance, reasonQuota, reasonKey:
		return why
	}
	return ""
}

// How long a backend that refused its key, or whose account is used up, is not asked while another one can be; and the
// longest that a vendor's Retry-After is believed.
const (
	keyRest  = time.Minute
	mostRest = 10 * time.Minute
)

// failed keeps that the backend has failed an attempt: it is left alone for a while where it is known that it will refuse
// again, and conversations that went elsewhere return to it once it has not failed for so long.
func (b *backend) failed(why reason, a *attempt, well time.Duration) {
	wait := time.Duration(0)
	switch why {
	case reasonKey, reasonQuota:
		wait = keyRest
	case reasonRate, reasonAllowance:
		seconds, _ := strconv.Atoi(a.answer.header.Get("Retry-After")) // a date is no wait that is worth its parsing
		wait = min(time.Duration(seconds)*time.Second, mostRest)
	}
	now := time.Now()
	if wait > 0 {
		b.resting.Store(now.Add(wait).UnixNano())
	}
	b.ill.Store(now.Add(max(wait, well)).UnixNano())
}

// inCooldown says whether the backend is left alone. One whose circuit is open is not: its refusal costs nothing, and the
// call that the circuit lets through now and then is how it is found well again.
func (b *backend) inCooldown() bool { return b.resting.Load() > time.Now().UnixNano() }

// order is the order in which a request asks the choices of a route. The backends come in that of the route. Of the
// keys of a backend each conversation has one that it always goes to, so that the vendor's prompt cache is found again
// (rendezvous hashing: a key that is added or left out moves no other conversation). Without the client's id of a
// conversation, its session decides. Backends in cooldown come last. A conversation with an open tool loop, or whose first
// choice has failed a request lately, stays where its last answer came from, because its thinking and the vendor's prompt
// cache are there.
func (r *route) order(ctx context.Context, s *Server, x *request, scope string) []*backend {
	id, _, err := routedRequest{request: x}.takeConversation()
	conv := ledger.Scope{Tenant: x.in.caller, Route: scope, Conversation: cmp.Or(id, x.newConversation)}
	answered, callIDs := x.calls()
	identified := err == nil && id != ""
	if !identified {
		conv, identified = s.ledger.Find(ctx, conv, x.endpoint.dialect, x.in.outline, callIDs)
	}
	place := conv.Conversation
	if id == "" {
		place = cmp.Or(x.session(), place)
	}
	weight := func(c choice) uint64 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(conv.Tenant + "\x00" + place + "\x00" + c.name)) // it never fails
		return h.Sum64()
	}
	compare := func(a, b choice) int { return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(weight(b), weight(a))) }
	stays := ""
	if identified && (len(answered) > 0 || slices.MinFunc(r.choices, compare).ill.Load() > time.Now().UnixNano()) {
		stays = answering(ctx, s.ledger, conv, answered)
	}
	last := func(c choice) int {
		switch {
		case c.inCooldown():
			return 2
		case c.name == stays:
			return 0
		}
		return 1
	}
	choices := slices.SortedStableFunc(slices.Values(r.choices), func(a, b choice) int {
		return cmp.Or(cmp.Compare(last(a), last(b)), compare(a, b))
	})
	order := make([]*backend, len(choices))
	for i, c := range choices {
		order[i] = c.backend
	}
	return order
}

// session returns what the client calls its session or, without that, its user. Only a request's place depends on it:
// conversations of one session share no history.
func (x *request) session() string {
	if id := sessionOf(x.in.header); id != "" {
		return id
	}
	o := x.in.outline
	metadata := o.Object(o.Members.Get("metadata"))
	for _, span := range []wire.Span{o.Members.Get("prompt_cache_key"), o.Members.Get("user"), metadata.Get("user_id")} {
		if id, _ := o.Text(span); id != "" {
			return id
		}
	}
	return ""
}

// calls are the ids of the calls of tools whose results end a request, of its newest message that has any; notes of the
// system may stand behind them, as Claude Code's about how many tokens are left. All are those of all calls, the newest
// first, where they are not in messages of the outline.
func (x *request) calls() (answered, callIDs []string) {
	o := x.in.outline
	if x.endpoint.dialect == wire.Responses {
		trailing := true
		for _, item := range slices.Backward(gjson.GetBytes(o.Body, "input").Array()) {
			id := item.Get("call_id")
			if id.Exists() {
				callIDs = append(callIDs, id.Str)
			}
			switch {
			case !trailing:
			case strings.HasSuffix(item.Get("type").Str, "_call_output"):
				answered = append(answered, id.Str)
			case !wire.IsSystem(item.Get("role").Str):
				trailing = false
			}
		}
		return answered, callIDs
	}
	for i := thinking.Loop(o, x.endpoint.dialect); i < len(o.Messages); i++ {
		if wire.IsSystem(o.Messages[i].Role) {
			continue
		}
		answered = nil
		for _, span := range o.ResultIDs(x.endpoint.dialect, &o.Messages[i]) {
			id, _ := o.Text(span)
			answered = append(answered, id)
		}
	}
	return answered, answered
}

// answering is the backend that made calls of tools or, without calls, gave the newest answer, through whichever gateway;
// empty where nothing is known of them.
func answering(ctx context.Context, l *ledger.Ledger, scope ledger.Scope, calls []string) string {
	find := func() *ledger.Turn {
		if len(calls) == 0 {
			return l.Conversation(scope, nil).Last()
		}
		if n := l.Conversation(scope, nil).Calling(calls); n != nil {
			return n.Turn()
		}
		return nil
	}
	t := find()
	if (t == nil || len(calls) == 0) && l.Refresh(ctx, scope) { // the newest answer may be another gateway's
		t = find()
	}
	if t == nil {
		return ""
	}
	return t.Origin.Backend
}

// route sends the request to a backend, whose window the client is told. Where the
// backend cannot count tokens the gateway does.
func (x *request) route(b *backend) routedRequest {
	model := b.models.find(x.in.outline.Model)
	r := routedRequest{request: x, backend: b, model: model, modelInfo: b.modelInfo(model)}
	if x.endpoint.counts {
		r.backend = b.counter()
	}
	x.result.routedRequest = r
	r.tellWindow()
	return r
}

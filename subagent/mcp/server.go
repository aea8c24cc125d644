package mcp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"mneme/memory/secrets"
	"mneme/subagent/external"
)

// Times of the life with a server.
const (
	connectURL     = 10 * time.Second // for a session with a server, with its list of tools
	connectCommand = time.Minute      // the same with a program, which may be fetched first
	listTime       = 10 * time.Second // for its list of tools, later
	minBackoff     = 500 * time.Millisecond
	maxBackoff     = 30 * time.Second
	goodLife       = 10 * time.Second // a session that broke sooner, and answered no call, was no success
	checkEvery     = 15 * time.Second // for the pins, which another process may have changed
	listEvery      = 4                // checks: for the list of tools, by which a server that is gone is noticed
	listPause      = time.Second      // between two lists, whatever the server says of changes
)

// errUnusable is wrapped by refusals of what a server offers as a whole.
var errUnusable = errors.New("it cannot be used")

// server is one server of the configuration.
type server struct {
	name        string
	config      ServerConfig
	pins        Pins
	log         zerolog.Logger
	secrets     *secrets.Set  // of the configuration, should a server give them back
	pinsRead    chan struct{} // closed by know
	setPinsRead func()        // once the pins were read, or waited for in vain
	tried       chan struct{} // closed once the first attempt to reach it has ended
	relist      chan struct{} // has room for one; the list of tools is to be read again

	mu      sync.Mutex
	session *session // the last one, which may have broken
	state   string
	reason  string        // why it is not ready
	changed chan struct{} // closed and replaced whenever state changes
	pinned  map[string]external.Definition
	offered *offer                // nil before the first list
	usable  []external.Definition // of these, by name
	differ  []string              // names of tools that are not what is pinned
}

func newServer(name string, c ServerConfig, pins Pins, log zerolog.Logger) *server {
	s := &server{
		name: name, config: c, pins: pins, log: log, secrets: hidden(c), state: StateStarting,
		pinsRead: make(chan struct{}), tried: make(chan struct{}), relist: make(chan struct{}, 1),
		changed: make(chan struct{}),
	}
	if s.setPinsRead = sync.OnceFunc(func() { close(s.pinsRead) }); !s.config.Pin {
		s.setPinsRead()
	}
	return s
}

// hidden is what is secret in the configuration.
func hidden(c ServerConfig) *secrets.Set {
	values := slices.Collect(maps.Values(c.Headers))
	for _, variable := range c.Env {
		_, value, _ := strings.Cut(variable, "=")
		values = append(values, value)
	}
	return secrets.New(values...)
}

// run keeps a session until ctx ends.
func (s *server) run(ctx context.Context) {
	if len(s.config.Command) > 0 {
		runtime.LockOSThread() // for what it starts
		defer runtime.UnlockOSThread()
	}
	defer s.set(StateAway, "the service ends")
	backoff := minBackoff
	for attempt := 0; ctx.Err() == nil; attempt++ {
		session, err := s.connect(ctx, attempt)
		if err == nil {
			began := time.Now()
			s.log.Info().Int("tools", len(s.tools())).Str("protocol", session.InitializeResult().ProtocolVersion).
				Msg("an MCP server is ready")
			s.set(StateReady, "")
			s.settle()
			err = s.keep(ctx, session)
			session.end()
			if ctx.Err() == nil && (session.answered.Load() || time.Since(began) > goodLife || errors.Is(err, errGone)) {
				s.log.Warn().Err(err).Msg("the session with an MCP server broke")
				attempt, backoff = -1, minBackoff
				s.set(StateStarting, "")
				continue
			}
		}
		if ctx.Err() != nil {
			break
		}
		if s.set(StateAway, reasonOf(err)) {
			s.log.Warn().Err(err).Dur("again_in", backoff).Msg("an MCP server is away")
		}
		s.settle()
		select {
		case <-ctx.Done():
		case <-time.After(backoff):
			backoff = min(2*backoff, maxBackoff)
		}
	}
	s.settle()
}

// settle notes that an attempt has ended.
func (s *server) settle() {
	select {
	case <-s.tried:
	default:
		close(s.tried)
	}
}

// set publishes a state, and says whether it is another one.
func (s *server) set(state, reason string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	other := s.state != state || s.reason != reason
	s.state, s.reason = state, reason
	close(s.changed)
	s.changed = make(chan struct{})
	return other
}

// reasonOf is why a server is away, without anything that only its operator may know.
func reasonOf(err error) string {
	var status statusError
	switch {
	case errors.As(err, &status):
		return status.Error()
	case errors.Is(err, errUnusable):
		return strings.TrimPrefix(err.Error(), errUnusable.Error()+": ")
	case errors.Is(err, errPins):
		return errPins.Error()
	case errors.Is(err, errTooLong):
		return fmt.Sprintf("it sent more at once than is read: %d MiB, of a list of tools %d MiB",
			maxMessage>>20, maxList>>20)
	case errors.Is(err, context.DeadlineExceeded):
		return "it does not answer"
	}
	for _, sentinel := range []error{errRedirected, errNotReached, errCut, errGone, errEnded} {
		if errors.Is(err, sentinel) {
			return sentinel.Error()
		}
	}
	return noProtocol
}

// noProtocol is the reason where none else is known.
const noProtocol = "it does not speak the protocol"

var errPins = errors.New("the store with the pins of its tools cannot be used")

// connect makes a session and reads the list of tools by it.
func (s *server) connect(ctx context.Context, attempt int) (*session, error) {
	limit := connectURL
	if len(s.config.Command) > 0 {
		limit = connectCommand
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := s.readPins(ctx); err != nil {
		return nil, err
	}
	session, err := s.open(ctx, attempt)
	if err != nil {
		return nil, err
	}
	if err := s.refresh(ctx, session); err != nil {
		session.fail(err)
		session.end()
		return nil, context.Cause(session.ctx)
	}
	s.mu.Lock()
	s.session = session
	s.mu.Unlock()
	return session, nil
}

// keep keeps what is known of a server up to date until its session breaks.
func (s *server) keep(ctx context.Context, session *session) error {
	check := time.NewTicker(checkEvery)
	defer check.Stop()
	for checks := 1; ; {
		listing := false
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-session.ctx.Done():
			return context.Cause(session.ctx)
		case <-s.relist:
			listing = true
		case <-check.C:
			if checks++; checks%listEvery != 0 {
				if err := s.readPins(ctx); err != nil {
					s.log.Debug().Err(err).Msg("the pins of an MCP server's tools cannot be read")
				}
				continue
			}
		}
		limit, cancel := context.WithTimeout(ctx, listTime)
		err := s.refresh(limit, session)
		cancel()
		// A server that does one thing after the other may not answer while a tool works.
		if err != nil && ctx.Err() == nil && session.calls.Load() == 0 && !errors.Is(err, errPins) {
			session.fail(err)
		}
		if listing {
			select {
			case <-ctx.Done():
			case <-session.ctx.Done():
			case <-time.After(listPause):
			}
		}
	}
}

// refresh reads the list of tools and the pins, and pins the first list.
func (s *server) refresh(ctx context.Context, session *session) error {
	o, err := list(ctx, s.name, session.ClientSession)
	if err != nil {
		return err
	}
	if err := s.readPins(ctx); err != nil {
		return err
	}
	if len(o.refused) > 0 {
		s.log.Warn().Strs("tools", o.refused).Msg("tools of an MCP server are refused: their names or schemas cannot be used")
	}
	first := false
	s.update(func() { s.offered, first = &o, len(s.pinned) == 0 })
	if !s.config.Pin || !first || len(o.tools) == 0 {
		return nil
	}
	pinned, err := s.pins.Pin(ctx, s.name, slices.Collect(maps.Values(o.tools))...)
	if err != nil {
		return fmt.Errorf("%w: %w", errPins, err)
	}
	s.log.Info().Int("tools", len(pinned)).Msg("the tools of an MCP server are pinned")
	s.take(pinned)
	return nil
}

// readPins reads what is pinned.
func (s *server) readPins(ctx context.Context) error {
	if !s.config.Pin {
		return nil
	}
	pinned, err := s.pins.Pinned(ctx, s.name)
	if err != nil {
		return fmt.Errorf("%w: %w", errPins, err)
	}
	s.take(pinned)
	return nil
}

// take notes what is pinned.
func (s *server) take(pinned map[string]external.Definition) {
	s.update(func() { s.pinned = pinned })
	s.setPinsRead()
}

// update changes what is pinned or offered, and what follows from it.
func (s *server) update(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	previous := s.differ
	change()
	s.usable, s.differ = nil, nil
	switch {
	case s.offered == nil && s.config.Pin:
		s.usable = slices.Collect(maps.Values(s.pinned))
	case s.offered == nil:
	case !s.config.Pin:
		s.usable = slices.Collect(maps.Values(s.offered.tools))
	default:
		s.compare()
	}
	slices.SortFunc(s.usable, func(a, b external.Definition) int { return strings.Compare(a.Name, b.Name) })
	slices.Sort(s.differ)
	if len(s.differ) > 0 && !slices.Equal(previous, s.differ) {
		s.log.Warn().Strs("tools", s.differ).
			Msg("tools of an MCP server are not what was accepted, and are not used: see mneme tools accept")
	}
}

// compare tells tools that are offered as they are pinned from others. The lock is held.
func (s *server) compare() {
	for name, d := range s.pinned {
		if now, offered := s.offered.tools[name]; offered && now.Hash() == d.Hash() {
			s.usable = append(s.usable, d)
		} else {
			s.differ = append(s.differ, name)
		}
	}
	for name := range s.offered.tools {
		if _, pinned := s.pinned[name]; !pinned && len(s.pinned) > 0 {
			s.differ = append(s.differ, name)
		}
	}
}

// accept pins what is offered now.
func (s *server) accept(ctx context.Context) error {
	if !s.config.Pin {
		return fmt.Errorf("the tools of %s are not pinned: what it offers is used as it is", s.name)
	}
	session, err := s.current(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	o, err := list(ctx, s.name, session.ClientSession)
	if err != nil {
		return fmt.Errorf("the tools of %s cannot be listed: %s", s.name, reasonOf(err))
	}
	if err := s.pins.Accept(ctx, s.name, slices.Collect(maps.Values(o.tools))...); err != nil {
		return fmt.Errorf("the tools of %s cannot be pinned: %w", s.name, err)
	}
	s.update(func() { s.offered, s.pinned = &o, o.tools })
	s.log.Info().Int("tools", len(o.tools)).Msg("the tools of an MCP server were accepted")
	return nil
}

// tools are those that may be used, by their names.
func (s *server) tools() []external.Definition {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.usable
}

// permits says why a tool may not be called; nil if it may.
func (s *server) permits(tool string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch hasName := func(d external.Definition) bool { return d.Name == tool }; {
	case slices.ContainsFunc(s.usable, hasName):
		return nil
	case slices.Contains(s.differ, tool):
		return fmt.Errorf("The tool %s of the server %s is not what was accepted. It is not called until an operator "+
			"accepts it.", clip(tool), s.name)
	}
	return fmt.Errorf("The server %s has no tool %s.", s.name, clip(tool))
}

func (s *server) status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Status{Server: s.name, State: s.state, Reason: s.reason, Tools: len(s.usable), Changed: s.differ}
	if s.offered != nil {
		st.Refused = s.offered.refused
	}
	return st
}

// current is the session, for which it waits while an attempt is under way. The error is a
// sentence.
func (s *server) current(ctx context.Context) (*session, error) {
	for {
		s.mu.Lock()
		session, state, reason, changed := s.session, s.state, s.reason, s.changed
		s.mu.Unlock()
		switch {
		case state == StateAway:
			return nil, fmt.Errorf("The server %s is away: %s. The tool was not called; go on without it.", s.name, reason)
		case state == StateReady && session.ctx.Err() == nil:
			return session, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("The server %s is not ready yet. The tool was not called; go on without it. (%w)",
				s.name, ctx.Err())
		}
	}
}

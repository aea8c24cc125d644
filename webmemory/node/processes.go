package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"mneme/access"
	"mneme/access/fair"
	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/redisstore"
	"mneme/memory/telemetry"
	webapi "mneme/webmemory/api"
)

// Peers connects this process with the other processes that serve the same memory. Each process announces its URL in
// Redis and calls the others on routes below InternalPath. These routes return nothing that a public route would not
// return. A missing response never counts as an answer.
type Peers struct {
	*Core
	StoreWatch *StoreWatch

	Between    *http.Client // client for the other processes
	neighbours neighbours
}

// InternalPath is the prefix of routes for other processes and for agents.
const InternalPath = "/internal/v1"

// Timeouts for other processes. A paused process accepts connections and never responds.
const (
	otherDials   = time.Second
	otherAnswers = 3 * time.Second
)

// NewOthersClient returns the client for requests to other webmemory processes.
func NewOthersClient(svc *telemetry.Service, gate *access.Gate, dialTLS dial) *http.Client {
	client := &http.Client{CheckRedirect: telemetry.NoRedirect}
	client.Transport = svc.Transport("webmemory", gate.Carry(&http.Transport{
		DialContext:           (&net.Dialer{Timeout: otherDials}).DialContext,
		DialTLSContext:        dialTLS.withTimeout(otherAnswers),
		TLSHandshakeTimeout:   otherAnswers,
		ResponseHeaderTimeout: otherAnswers,
		IdleConnTimeout:       30 * time.Second,
	}))
	return client
}

// dial connects to an address, as http.Transport.DialTLSContext does.
type dial func(ctx context.Context, network, addr string) (net.Conn, error)

// withTimeout returns d with a time limit, or nil if d is nil.
func (d dial) withTimeout(limit time.Duration) func(ctx context.Context, network, addr string) (net.Conn, error) {
	if d == nil {
		return nil
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		return d(ctx, network, addr)
	}
}

// Announce reports to Redis every redisstore.Beat that this process lives. When the service ends, Announce removes the
// process from the list.
func (s *Peers) Announce() {
	if s.Cfg.Advertise == "" {
		return
	}
	for {
		if err := s.announceOnce(); err != nil && s.Life.Err() == nil {
			s.Log.Debug().Err(err).Msg("other processes were not told that this one lives")
		}
		select {
		case <-time.After(redisstore.Beat):
			continue
		case <-s.Life.Done():
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.Life), otherAnswers)
		defer cancel()
		if err := s.Store.Processes.Resign(ctx, s.Spool.Name()); err != nil {
			s.Log.Debug().Err(err).Msg("this process stays on the list until it is taken for dead")
		}
		return
	}
}

func (s *Peers) announceOnce() error {
	ctx, cancel := context.WithTimeout(s.Life, StoreTimeout)
	defer cancel()
	if _, err := s.others(ctx); err != nil { // remember them in case Redis loses the list
		return err
	}
	return s.Store.Processes.Announce(ctx, s.Spool.Name(), s.Cfg.Advertise)
}

// others returns the other live processes that have a URL. For a while after a loss it also returns previously listed
// processes, because Redis may have lost the list.
func (s *Peers) others(ctx context.Context) ([]redisstore.Process, error) {
	processes, err := s.Store.Processes.List(ctx)
	if err != nil {
		return nil, err
	}
	var others []redisstore.Process
	for _, p := range s.neighbours.update(processes, s.StoreWatch.Losses.IsRecent(),
		s.StoreWatch.Losses.Noticed(Retelling)) {
		if p.ID != s.Spool.Name() && p.URL != "" && !s.Spool.Dead(p.ID) {
			others = append(others, p)
		}
	}
	return others, nil
}

// AskAll calls an internal route of all other live processes concurrently. Each response is decoded into its own A and
// passed to take, one at a time. failed receives each process whose call failed. All calls share one timeout. AskAll
// returns an error if the other processes are unknown.
func AskAll[A any](
	ctx context.Context, s *Peers, method, path string, body any, take func(A), failed func(redisstore.Process, error),
) error {
	if wait := redisstore.Beat + redisstore.Beat/4 - Monotonic(); wait > 0 && s.Cfg.Advertise != "" {
		// Redis may have lost the list just before this process began. After a beat all live processes are listed again,
		// except those of version 0.1.0.
		_ = Pause(ctx, wait)
	}
	others, err := s.others(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*otherAnswers)
	defer cancel()
	var mu sync.Mutex
	var asking sync.WaitGroup
	for _, p := range others {
		asking.Go(func() {
			var out A
			err := s.askOther(ctx, p, method, path, body, &out)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed(p, err)
				return
			}
			take(out)
		})
	}
	asking.Wait()
	return nil
}

// neighbours holds the recently listed processes.
type neighbours struct {
	mu        sync.Mutex
	processes map[string]redisstore.Process // guarded by mu: by id
}

// update stores the listed processes and returns them. With keepRecent, previously listed processes that still count as
// live stay too. With silent, they stay even if they no longer count as live.
func (n *neighbours) update(processes []redisstore.Process, keepRecent, silent bool) []redisstore.Process {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := map[string]redisstore.Process{}
	for _, p := range processes {
		now[p.ID] = p
	}
	if keepRecent {
		for id, p := range n.processes {
			if _, ok := now[id]; !ok && (silent || p.Lives()) {
				now[id] = p
			}
		}
	}
	n.processes = now
	return slices.Collect(maps.Values(now))
}

// askOther calls an internal route of another process. path is relative to InternalPath. The error wraps an
// *api.Problem if the process responded with one.
func (s *Peers) askOther(ctx context.Context, p redisstore.Process, method, path string, body, into any) error {
	client, err := webapi.NewOver(p.URL, s.Between)
	if err == nil {
		err = client.CallWith(ctx, method, InternalPath+path, body, into)
	}
	if err != nil {
		return fmt.Errorf("asking process %s: %w", p.ID, err)
	}
	return nil
}

// TellOthers asks all live processes to apply an erasure, and waits until each has responded or timed out. An
// unreachable process applies the erasure when it next reads the tombstones. TellOthers returns the runs of the chat
// that the processes knew.
func (s *Peers) TellOthers(ctx context.Context, e Erasure) (runs []string) {
	take := func(out Applied) { runs = append(runs, out.Runs...) }
	err := fair.Block(ctx, func() error {
		return AskAll(ctx, s, http.MethodPost, "/erasures", e, take, func(p redisstore.Process, err error) {
			s.Log.Warn().Err(err).Str("process", p.ID).
				Msg("another process has not applied an erasure yet; it does when it looks")
		})
	})
	if err != nil {
		s.Log.Warn().Err(err).Msg("other processes are not known; they apply an erasure when they look")
	}
	return runs
}

// AskForRun returns the longest record of a run among the other live processes. lines is empty if no process knows the
// run.
func (s *Peers) AskForRun(ctx context.Context, chat memory.Chat, run string) (head EndHead, lines [][]byte,
	err error) {
	path := "/chats/" + url.PathEscape(chat.String()) + "/runs/" + url.PathEscape(run)
	longest := func(answer KnownRun) {
		if n := len(answer.Events); n > len(lines) || n == len(lines) && answer.Run.Waiting != nil {
			head, lines = answer.Run, lines[:0]
			for _, e := range answer.Events {
				lines = append(lines, e)
			}
		}
	}
	err = AskAll(ctx, s, http.MethodGet, path, nil, longest, func(_ redisstore.Process, err error) {
		if !errors.Is(err, api.ErrUnknownRun) {
			s.Log.Warn().Err(err).Str("run", run).Msg("another process could not be asked for a run")
		}
	})
	return head, lines, err
}

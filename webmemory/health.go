package webmemory

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/cold"
	"mneme/memory/telemetry"
	"mneme/webmemory/erase"
	"mneme/webmemory/node"
	"mneme/webmemory/runs"
)

// monitor checks Redis, the cold store and this disk, and serves the service's health.
type monitor struct {
	*node.Core
	registry   *runs.Registry
	storeWatch *node.StoreWatch
	tombstones *erase.Tombstones
}

// probeEvery is the number of checks between probes of a Redis that refuses nothing. Each probe writes to Redis's log.
const probeEvery = 5

// watchStore updates the health of Redis and this disk, and follows erasures.
func (s *monitor) watchStore() {
	var probed error
	for check := 0; ; check++ {
		ctx, cancel := context.WithTimeout(s.Life, node.CheckEvery)
		epoch, err := s.Store.Server.Epoch(ctx)
		servers, full, unknown := s.Store.Server.RunIDs(ctx)
		switch {
		case err != nil && !errors.Is(err, memory.ErrRefused):
			probed = nil
		case check%probeEvery == 0, probed != nil, err != nil:
			probed = s.Store.Server.Probe(ctx)
		}
		refusal, denied := s.refusal(ctx, probed)
		if err == nil {
			if failed := s.tombstones.FollowErasures(ctx); failed != nil && s.Life.Err() == nil {
				s.Log.Debug().Err(failed).Msg("what others erased is not known yet")
			}
		}
		cancel()
		if errors.Is(err, memory.ErrDamaged) || errors.Is(err, memory.ErrRefused) {
			err = nil // Redis answered; refusal has the reason
		}
		if s.storeWatch.Health.NoteRefusal(refusal, denied) {
			s.Telemetry.Often.Error().Str("reason", refusal).
				Msg("messages cannot be stored, or not while Redis is away; reading works")
		}
		if err == nil && epoch != "" {
			s.storeWatch.NoteEpoch(epoch)
		}
		if err == nil && unknown == nil {
			s.storeWatch.NoteServers(servers)
			if s.storeWatch.Health.NoteFull(full) {
				s.Log.Warn().Msg(node.TooFull(full))
			}
		}
		if s.Life.Err() == nil && s.storeWatch.Health.Note(err) {
			if err != nil {
				s.Telemetry.Often.Warn().Err(err).Msg(
					"Redis does not answer: new messages are refused, running answers are kept in the spool",
				)
			} else {
				s.Log.Info().Msg("Redis answers again")
			}
		}
		if node.Pause(s.Life, node.CheckEvery) != nil {
			return
		}
	}
}

// coldEvery is the interval between two probes of the cold store.
const coldEvery = 10 * time.Second

// watchCold updates the health of the cold store. If none is configured, it reports a fault only if chats sleep in one.
func (s *monitor) watchCold() {
	if s.Cfg.Cold.Store == nil {
		return
	}
	for {
		ctx, cancel := context.WithTimeout(s.Life, coldEvery/2)
		_, err := s.Cfg.Cold.Store.Get(ctx, cold.Chats+"mneme.probe") // no chat has this object
		if errors.Is(err, cold.ErrNone) {
			err = nil
		}
		if _, absent := s.Cfg.Cold.Store.(cold.Absent); absent {
			if used, unknown := s.Store.Cold.InUse(ctx); unknown != nil || !used {
				err = nil
			}
		}
		cancel()
		reason := ""
		if err != nil {
			reason = fmt.Sprintf("The cold store cannot be read, and requests for chats that sleep in it are refused: %v.", err)
		}
		if s.Life.Err() == nil && s.storeWatch.Health.NoteCold(reason) {
			s.Log.Error().Err(err).Msg("the cold store cannot be read")
		}
		if node.Pause(s.Life, coldEvery) != nil {
			return
		}
	}
}

// refusal returns the reason why the store or the spool cannot be written. probed is the error of the last probe of a
// Redis that answers. denied reports whether an operator has to permit something.
func (s *monitor) refusal(ctx context.Context, probed error) (reason string, denied bool) {
	reasons := []string{s.Store.Server.Refusal(ctx)}
	var refused *memory.RefusedError
	switch denied = errors.As(probed, &refused); {
	case denied:
		reasons = append(reasons, refused.Error()+". "+refused.Fix)
	case probed != nil && reasons[0] == "":
		reasons = append(reasons, probed.Error())
	}
	for _, err := range []error{s.Store.Server.Sound(ctx), s.Spool.Check()} {
		if err != nil {
			reasons = append(reasons, err.Error())
		}
	}
	return strings.Join(slices.DeleteFunc(reasons, func(r string) bool { return r == "" }), "; "), denied
}

// ready is the response to GET /readyz.
type ready struct {
	telemetry.Readiness
	Redis *awayState `json:"redis,omitempty"`
}

type awayState struct {
	AwaySince time.Time `json:"away_since"`
}

// healthz reports that the process is alive.
func (s *monitor) healthz(c *gin.Context) error {
	return api.Answer(c.Writer, http.StatusOK, telemetry.Readiness{Status: "ok"}, nil)
}

// readyz reports whether clients should send messages here, and why not. If Redis is down, the service is degraded but
// ready, because it still answers, if only with a clear 503.
func (s *monitor) readyz(c *gin.Context) error {
	s.registry.Mu.Lock()
	draining := s.registry.Draining
	s.registry.Mu.Unlock()
	now := s.storeWatch.Health.Get()
	out, status := ready{}, http.StatusOK
	because := func(state, reason string) { out.Status, out.Reasons = state, append(out.Reasons, reason) }
	out.Status = "ready"
	if !now.DownSince.IsZero() {
		because("degraded", "Redis does not answer: new messages are refused, running answers are kept in the spool.")
		out.Redis = &awayState{now.DownSince}
	}
	// A refusal prevents writes although Redis answers.
	for _, reason := range []string{now.Refusal, node.TooFull(now.Full), now.Cold, s.Cfg.Gate.LossMessage()} {
		if reason != "" {
			because("degraded", reason)
		}
	}
	if now.Denied {
		out.Status, status = "refused", http.StatusServiceUnavailable
	}
	if !now.Answered {
		because("starting", "Redis has not answered since the service started.")
		status = http.StatusServiceUnavailable
	}
	if draining {
		because("draining", "The service is stopping and takes no new messages.")
		status = http.StatusServiceUnavailable
	}
	return api.Answer(c.Writer, status, out, nil)
}

package past

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/gin-gonic/gin"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/memory/redisstore"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/node"
	"mneme/webmemory/problem"
)

// HistoryRoutes handles requests for pages of histories, influence and quarantine. It changes no history.
type HistoryRoutes struct {
	*node.Core
	Histories *Histories
}

// GetHistory handles GET …/history of a chat or of one of its subagents. A negative offset counts from the end.
func (s *HistoryRoutes) GetHistory(c *gin.Context, key memory.Key) error {
	limit, err := problem.Number(c, "limit", node.PageSize, 1, node.MaxPage)
	if err != nil {
		return err
	}
	offset, err := problem.Number(c, "offset", 0, -1<<31, 1<<31-1)
	if err != nil {
		return err
	}
	archive, err := problem.Flag(c, "archive")
	if err != nil {
		return err
	}
	runs, err := problem.Flag(c, "runs")
	if err != nil {
		return err
	}
	page := s.page
	if archive {
		page = s.archivedPage
	}
	out, err := page(c.Request.Context(), key, offset, limit)
	if err != nil {
		return err
	}
	if out.Messages == nil {
		out.Messages = []json.RawMessage{}
	}
	if runs && !out.Stale {
		if out.Runs, err = s.viewRuns(c.Request.Context(), key, out.Messages); err != nil {
			return err
		}
	}
	return api.Answer(c.Writer, http.StatusOK, out, nil)
}

// bounds returns the start and end of a page, counted from the start of the history.
func bounds(total, offset, limit int) (start, end int) {
	if offset < 0 {
		offset = max(total+offset, 0)
	}
	start = min(offset, total)
	return start, min(start+limit, total)
}

// page returns a page of a history without its archive.
func (s *HistoryRoutes) page(ctx context.Context, key memory.Key, offset, limit int) (webapi.HistoryPage, error) {
	h, stale, err := s.Histories.Current(ctx, key)
	if err != nil {
		return webapi.HistoryPage{}, err
	}
	start, end := bounds(h.Len(), offset, limit)
	out := webapi.HistoryPage{Key: key.String(), Total: h.Len(), Offset: start, Stale: stale}
	out.Messages = h.Raw(start)[:end-start]
	if end < h.Len() {
		out.NextOffset = end
	}
	return out, nil
}

// archivedPage returns a page of a history and its archive as one sequence, oldest message first. It reads only the
// segments on the page.
func (s *HistoryRoutes) archivedPage(ctx context.Context, key memory.Key, offset, limit int) (
	webapi.HistoryPage, error) {
	for try := 1; ; try++ {
		h, segments, err := s.withSegments(ctx, key)
		if err != nil {
			return webapi.HistoryPage{}, err
		}
		out, err := s.cutOut(ctx, h, segments, offset, limit)
		// A segment that looks damaged may have been redacted, moved or dropped after its description was read.
		if err != nil || out.Damaged == nil || try == 3 {
			return out, err
		}
	}
}

// withSegments returns a history and its archive's segments from the same moment. It returns memory.ErrUnavailable if
// the history changed during every attempt.
func (s *HistoryRoutes) withSegments(ctx context.Context, key memory.Key) (
	*memory.History, []redisstore.Segment, error) {
	load := func() (*memory.History, error) {
		loaded, err := s.Cache.Load(ctx, 0, memory.Empty(key))
		if err != nil {
			return nil, err
		}
		return loaded[0], nil
	}
	h, err := load()
	for range 8 {
		if err != nil {
			return nil, nil, err
		}
		prev := h
		segments, err := s.Store.Archives.AllSegments(ctx, key)
		if err == nil {
			h, err = load()
		}
		// A trim or a rewind between the reads would show messages twice or not at all.
		if err == nil && h.First() == prev.First() && h.Cut() == prev.Cut() {
			return h, segments, nil
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return nil, nil, fmt.Errorf("%w: %s changed under every attempt to read it", memory.ErrUnavailable, key)
}

// cutOut returns a page of a history and its archive. out.Damaged lists damaged and missing segments.
func (s *HistoryRoutes) cutOut(ctx context.Context, h *memory.History, segments []redisstore.Segment,
	offset, limit int) (out webapi.HistoryPage, err error) {
	archived := 0
	for _, seg := range segments {
		archived += seg.Messages
	}
	total := archived + h.Len()
	start, end := bounds(total, offset, limit)
	out = webapi.HistoryPage{Key: h.Key().String(), Total: total, Offset: start}
	if end < total {
		out.NextOffset = end
	}
	var selected []redisstore.Segment
	var places []int // offsets of their first messages in the sequence
	pos := 0
	for _, seg := range segments {
		// A segment without a description counts no messages. It is read if its position is on the page.
		if pos < end && pos+seg.Messages > start || seg.Messages == 0 && start <= pos && (pos < end || end == total) {
			selected, places = append(selected, seg), append(places, pos)
		}
		pos += seg.Messages
	}
	read := 0
	for chunk := range slices.Chunk(selected, 32) {
		values, err := s.Histories.readEach(ctx, h.Key(), chunk)
		if err != nil {
			return out, err
		}
		for i, v := range values {
			place, seg := places[read+i], chunk[i]
			first, last := max(start-place, 0), min(end-place, seg.Messages)
			if v.absent != nil || len(v.raw) != seg.Messages {
				out.Damaged = append(out.Damaged, webapi.HistoryGap{Offset: place + first, Messages: max(last-first, 0)})
				continue
			}
			if first < last {
				out.Messages = append(out.Messages, v.raw[first:last]...)
			}
		}
		read += len(chunk)
	}
	if end > archived {
		first := max(start-archived, 0)
		out.Messages = append(out.Messages, h.Raw(first)[:end-archived-first]...)
	}
	return out, nil
}

// segmentRead is the result of reading a segment: its messages, or the reason why they are missing.
type segmentRead struct {
	raw    []json.RawMessage
	absent error // memory.ErrDamaged or errGone

	changed bool // the segment changed after it was listed
}

// errGone indicates that a part of an archive is missing.
var errGone = errors.New("a part of the archive is gone")

// viewRuns returns the runs that made messages of a history, by run id. It uses the histories for runs without a
// complete log.
func (s *HistoryRoutes) viewRuns(ctx context.Context, key memory.Key, messages []json.RawMessage) (
	map[string]*webapi.RunView, error) {
	var runs []string
	for _, id := range memory.IDs(messages) {
		if run := memory.RunOf(id); node.IsRunID(run) && !slices.Contains(runs, run) {
			runs = append(runs, run)
		}
	}
	out, missing := map[string]*webapi.RunView{}, RunMessages{}
	for chunk := range slices.Chunk(runs, 100) {
		logs, err := s.Store.Runs.Logs(ctx, key.Chat(), chunk...)
		if err != nil {
			return nil, err
		}
		for i, logged := range logs {
			if view := webapi.ViewRun(WholeLog(logged)); view != nil {
				out[chunk[i]] = view
			} else {
				missing[chunk[i]] = nil
			}
		}
	}
	if len(missing) == 0 {
		return out, nil
	}
	missing.take(key.Agent(), messages) // messages may come from the archive
	if err := s.Recollect(ctx, key.Chat(), missing); err != nil {
		return nil, err
	}
	for run, messages := range missing {
		if view := webapi.ViewRun(webapi.Retell(run, messages)); view != nil {
			out[run] = view
		}
	}
	return out, nil
}

// RunMessages holds messages of runs, by run id, as histories store them. take collects only runs that have an entry.
type RunMessages map[string][]webapi.Remembered

// take adds the messages of a history that t lacks. It skips entries that do not decode.
func (t RunMessages) take(agent memory.Agent, raw []json.RawMessage) {
	for i, id := range memory.IDs(raw) {
		run := memory.RunOf(id)
		messages, ok := t[run]
		if !ok || slices.ContainsFunc(messages, func(m webapi.Remembered) bool { return m.ID == id && m.Subagent == agent }) {
			continue
		}
		if m, err := memory.Decode(raw[i : i+1]); err == nil {
			_, seq, _ := memory.SplitID(id)
			t[run] = append(messages, webapi.Remembered{Seq: seq, Subagent: agent, Message: m[0]})
		}
	}
}

// Recollect adds the messages of the chat's current histories, without archives.
func (s *HistoryRoutes) Recollect(ctx context.Context, chat memory.Chat, runs RunMessages) error {
	histories, err := s.Histories.CurrentAll(ctx, chat)
	for key, h := range histories {
		runs.take(key.Agent(), h.Raw(0))
	}
	return err
}

// WholeLog decodes the events of a run's log. It returns nil if an event is missing or damaged.
func WholeLog(logged []redisstore.Logged) []event.Event {
	events := make([]event.Event, len(logged))
	for i, l := range logged {
		e, err := event.Decode(l.Line)
		if err != nil || e.Seq != int64(i+1) {
			return nil
		}
		events[i] = e
	}
	return events
}

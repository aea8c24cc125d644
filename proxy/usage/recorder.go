package usage

import (
	"context"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

// Store keeps the records of all processes, the last ones of them.
type Store interface {
	// AppendUsage keeps records. After an error some of them may have been kept;
	// they come again.
	AppendUsage(ctx context.Context, records []Record) error
	// UsageSince gives the records that were kept since a time, the newest first.
	// An error ends it.
	UsageSince(ctx context.Context, since time.Time) iter.Seq2[Record, error]
	// OldestUsage is when the oldest record was kept; zero if there is none.
	OldestUsage(ctx context.Context) (time.Time, error)
}

// Options are what a Recorder works with.
type Options struct {
	Store Store        // nil: reports are of this process only
	Count func(Record) // told of every record, for counters; it must not block
	Log   zerolog.Logger
}

const (
	maxWaiting = 4096 // records that may wait for the store
	maxKept    = 4096 // records of this process that are kept for reports without a store
)

// reportTimeout bounds the reading of the store for one report.
const reportTimeout = 15 * time.Second

// Recorder takes a record of every call. It is safe for concurrent use.
type Recorder struct {
	options Options
	ring    ring
	dropped atomic.Int64

	mu      sync.Mutex
	waiting []Record // not stored yet, the oldest first
	closed  bool

	wake    chan struct{} // something waits; of size 1
	closing chan struct{}
	done    chan struct{} // the writer has ended
	ctx     context.Context
	cancel  context.CancelFunc // ends the attempt of the writer
}

// NewRecorder makes a Recorder. With a store it starts one goroutine, the writer,
// which Close stops.
func NewRecorder(o Options) *Recorder {
	r := &Recorder{options: o, ring: ring{began: time.Now()},
		wake: make(chan struct{}, 1), closing: make(chan struct{}), done: make(chan struct{})}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	if r.options.Store == nil {
		close(r.done)
	} else {
		go r.write()
	}
	return r
}

// Record takes the record of a call that is over. It never waits: with a store
// that takes nothing for long, records are dropped and counted.
func (r *Recorder) Record(rec Record) {
	rec.tidy()
	if r.options.Count != nil {
		r.options.Count(rec)
	}
	r.ring.put(rec)
	if r.options.Store == nil {
		return
	}
	r.mu.Lock()
	closed, room := r.closed, len(r.waiting) < maxWaiting
	if room && !closed {
		r.waiting = append(r.waiting, rec)
	}
	r.mu.Unlock()
	switch {
	case closed: // the writer, which logs otherwise, has ended
		r.dropped.Add(1)
		r.options.Log.Error().Int("dropped", 1).Msg("usage records are dropped: the gateway is closed")
	case !room:
		r.dropped.Add(1)
	default:
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}

// Dropped counts the records that never reached the store.
func (r *Recorder) Dropped() int64 { return r.dropped.Load() }

// Close writes what waits, for 2 s at most, and stops the writer. Later records
// are counted as dropped.
func (r *Recorder) Close() error {
	r.mu.Lock()
	if !r.closed {
		r.closed = true
		close(r.closing)
	}
	r.mu.Unlock()
	late := time.AfterFunc(closeWait, r.cancel)
	<-r.done
	late.Stop()
	r.cancel()
	return nil
}

// Report adds up the calls since a time, as ParseSince and ParseBy read it. If the
// store cannot be read the report is of this process and says so. The error wraps
// ErrQuery, or is the context's.
func (r *Recorder) Report(ctx context.Context, since, by string) (Report, error) {
	kind, err := ParseBy(by)
	if err != nil {
		return Report{}, err
	}
	from, err := ParseSince(since, time.Now())
	if err != nil {
		return Report{}, err
	}
	var report Report
	if r.options.Store != nil {
		report, err = r.stored(ctx, from, kind)
		if ctx.Err() != nil {
			return Report{}, context.Cause(ctx)
		}
	}
	if r.options.Store == nil || err != nil {
		report, _ = Aggregate(r.ring.all(), from, kind) // memory does not fail
		report.Oldest, report.Process, report.Degraded = r.ring.oldest(), true, err != nil
	}
	if err != nil {
		r.options.Log.Warn().Err(err).Msg("the store of usage records cannot be read")
	}
	report.Dropped = r.dropped.Load()
	return report, nil
}

// stored is a report of all that is kept.
func (r *Recorder) stored(ctx context.Context, since time.Time, by By) (Report, error) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	report, err := Aggregate(r.options.Store.UsageSince(ctx, since), since, by)
	if err == nil {
		report.Oldest, err = r.options.Store.OldestUsage(ctx)
	}
	return report, err
}

// ring keeps the last records of this process.
type ring struct {
	began time.Time

	mu      sync.Mutex
	records []Record
	next    int // where the next record goes once there are maxKept of them
}

func (r *ring) put(rec Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.records) < maxKept {
		r.records = append(r.records, rec)
		return
	}
	r.records[r.next] = rec
	r.next = (r.next + 1) % maxKept
}

// all gives the records as they are now.
func (r *ring) all() iter.Seq2[Record, error] {
	r.mu.Lock()
	records := slices.Clone(r.records)
	r.mu.Unlock()
	return func(yield func(Record, error) bool) {
		for _, rec := range records {
			if !yield(rec, nil) {
				return
			}
		}
	}
}

// oldest is the time from which on nothing is missing.
func (r *ring) oldest() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.records) < maxKept {
		return r.began
	}
	return r.records[r.next].At
}

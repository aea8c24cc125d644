package usage

import (
	"context"
	"slices"
	"time"
)

// Times of the writer.
const (
	writeTimeout = 2 * time.Second // of one attempt
	maxBatch     = 128
	firstPause   = 250 * time.Millisecond // after a failed attempt, then doubled
	maxPause     = 15 * time.Second
	closeWait    = 2 * time.Second       // for what waits when it is closed
	gather       = 50 * time.Millisecond // for more records, once one waits; the next query finds them
)

// write is the writer. It ends when the Recorder is closed, with what waits
// written or, after one more failure, given up.
func (r *Recorder) write() {
	defer close(r.done)
	var o outage
	for closing := false; ; {
		batch := r.next()
		if len(batch) == 0 {
			if closing {
				return
			}
			select {
			case <-r.wake:
				closing = r.closedWithin(gather)
			case <-r.closing:
				closing = true
			}
			continue
		}
		err := r.append(batch)
		pause := o.note(r, err)
		if err == nil {
			continue
		}
		if closing {
			r.giveUp()
			return
		}
		closing = r.closedWithin(pause)
	}
}

// closedWithin waits for d, or until the Recorder is closed, and says whether it is.
func (r *Recorder) closedWithin(d time.Duration) bool {
	select {
	case <-time.After(d):
		return false
	case <-r.closing:
		return true
	}
}

// next gives a copy of the oldest records that wait. They stay in the queue until append
// has written them, so that a failed attempt loses none; a record that was written twice
// has the same RequestID, its idempotency key, and is counted once.
func (r *Recorder) next() []Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.waiting[:min(maxBatch, len(r.waiting))])
}

// append writes the records that next showed.
func (r *Recorder) append(batch []Record) error {
	ctx, cancel := context.WithTimeout(r.ctx, writeTimeout)
	defer cancel()
	if err := r.options.Store.AppendUsage(ctx, batch); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = slices.Delete(r.waiting, 0, len(batch))
	return nil
}

// giveUp drops what waits.
func (r *Recorder) giveUp() {
	r.mu.Lock()
	n := len(r.waiting)
	r.waiting = nil
	r.mu.Unlock()
	r.dropped.Add(int64(n))
	r.options.Log.Error().Int("dropped", n).Msg("usage records are lost: the store did not take them before the end")
}

// outage is the exponential backoff of the writer while the store takes nothing, and
// what of it was logged. Only the writer's goroutine uses it.
type outage struct {
	pause   time.Duration // before the next attempt; 0 while all is well
	dropped int64         // as last logged
}

// note takes how an attempt ended, logs what is new, and gives the time to wait
// before the next one.
func (o *outage) note(r *Recorder, err error) time.Duration {
	dropped := r.dropped.Load()
	news := dropped - o.dropped
	o.dropped = dropped
	switch {
	case err != nil && o.pause == 0:
		r.options.Log.Warn().Err(err).Int64("dropped", news).Msg("usage records wait: the store does not take them")
	case err == nil && o.pause > 0:
		r.options.Log.Info().Int64("dropped", news).Msg("usage records are stored again")
	case news > 0: // err is nil where there are more calls than the store can take
		r.options.Log.Error().Err(err).Int64("dropped", news).Msg("usage records are dropped: more wait than may")
	}
	if err == nil {
		o.pause = 0
	} else {
		o.pause = min(maxPause, max(firstPause, 2*o.pause))
	}
	return o.pause
}

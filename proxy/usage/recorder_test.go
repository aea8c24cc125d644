package usage_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"mneme/proxy/usage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// store is one in memory that can fail and hang.
type store struct {
	mu      sync.Mutex
	records []usage.Record
	fault   error
	hold    chan struct{} // while it is not nil, appends wait for it to close
	entered chan struct{} // told of every append that begins, if there is room
}

var errAway = errors.New("the store is away")

func (s *store) AppendUsage(ctx context.Context, records []usage.Record) error {
	select {
	case s.entered <- struct{}{}:
	default:
	}
	s.mu.Lock()
	hold := s.hold
	s.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault == nil {
		s.records = append(s.records, records...)
	}
	return s.fault
}

func (s *store) UsageSince(context.Context, time.Time) iter.Seq2[usage.Record, error] {
	s.mu.Lock()
	defer s.mu.Unlock()
	records, fault := s.records, s.fault
	return func(yield func(usage.Record, error) bool) {
		for _, r := range records {
			if !yield(r, nil) {
				return
			}
		}
		if fault != nil {
			yield(usage.Record{}, fault)
		}
	}
}

func (s *store) OldestUsage(context.Context) (time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.records) == 0 {
		return time.Time{}, s.fault
	}
	return s.records[0].At, s.fault
}

func (s *store) becomes(fault error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

func (s *store) ids() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := make([]string, len(s.records))
	for i, r := range s.records {
		ids[i] = r.RequestID
	}
	return ids
}

// sleep lets time pass in a bubble and what is due happen.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// told adds up the dropped records that a log tells of.
func told(t *testing.T, log *bytes.Buffer) (n int64) {
	t.Helper()
	for line := range bytes.Lines(log.Bytes()) {
		var entry struct{ Dropped int64 }
		require.NoError(t, json.Unmarshal(line, &entry))
		n += entry.Dropped
	}
	return n
}

// call is the record of a call that has just ended.
func call(id string) usage.Record {
	return usage.Record{At: time.Now(), RequestID: id, Backend: "kimi", Outcome: usage.OutcomeOK, Tokens: usage.Tokens{
		Input: 2, Output: 1,
	}}
}

func TestRecordsReachTheStoreInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{}
		r := usage.NewRecorder(usage.Options{Store: s})
		var want []string
		for i := range 1000 {
			want = append(want, fmt.Sprint(i))
			r.Record(call(fmt.Sprint(i)))
		}
		sleep(time.Second)
		require.Equal(t, want, s.ids())
		require.NoError(t, r.Close())
		require.Zero(t, r.Dropped())
	})
}

func TestRecordsOutliveAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := &store{fault: errAway}
		r := usage.NewRecorder(usage.Options{Store: s, Log: zerolog.New(&log)})
		for _, id := range []string{"a", "b", "c"} {
			r.Record(call(id))
		}
		sleep(time.Hour)
		require.Equal(t, 1, strings.Count(log.String(), "\n"), "an outage is one line as long as nothing is lost: %s", &log)
		require.Contains(t, log.String(), "the store is away")
		s.becomes(nil)
		sleep(time.Minute)
		require.Equal(t, []string{"a", "b", "c"}, s.ids())
		require.Contains(t, log.String(), "stored again")
		require.NoError(t, r.Close())
		require.Zero(t, r.Dropped())
	})
}

// room is how many records may wait for the store, and how many are kept without one.
const room = 4096

// A call never waits, and what had no room is counted and logged, also when the
// outage is over.
func TestRecordsWithoutRoomAreDroppedAndTold(t *testing.T) {
	for name, hang := range map[string]bool{"a store that fails": false, "a store that hangs": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				s := &store{fault: errAway}
				if hang {
					s.hold = make(chan struct{})
				}
				counted := 0
				r := usage.NewRecorder(usage.Options{
					Store: s, Log: zerolog.New(&log), Count: func(usage.Record) { counted++ },
				})
				for i := range room + 15 {
					r.Record(call(fmt.Sprint(i)))
				}
				require.EqualValues(t, 15, r.Dropped())
				require.Equal(t, room+15, counted, "counters miss nothing")
				sleep(time.Minute)
				require.EqualValues(t, 15, told(t, &log))
				s.becomes(nil)
				if hang {
					close(s.hold)
				}
				sleep(time.Minute)
				require.Len(t, s.ids(), room, "what had room arrives")
				report, err := r.Report(t.Context(), "", "")
				require.NoError(t, err)
				require.EqualValues(t, 15, report.Dropped)
				require.NoError(t, r.Close())
			})
		})
	}
}

func TestCloseWritesWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{hold: make(chan struct{}), entered: make(chan struct{})}
		r := usage.NewRecorder(usage.Options{Store: s})
		r.Record(call("a"))
		<-s.entered
		for i := range 300 {
			r.Record(call(fmt.Sprint(i)))
		}
		time.AfterFunc(time.Second, func() { close(s.hold) })
		require.NoError(t, r.Close())
		require.Len(t, s.ids(), 301)
		require.NoError(t, r.Close(), "again")
	})
}

func TestCloseWaitsForNoStoreForLong(t *testing.T) {
	for name, hang := range map[string]bool{"a store that fails": false, "a store that hangs": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				s := &store{fault: errAway}
				if hang {
					s.hold = make(chan struct{})
				}
				r := usage.NewRecorder(usage.Options{Store: s, Log: zerolog.New(&log)})
				for i := range 300 {
					r.Record(call(fmt.Sprint(i)))
				}
				time.Sleep(time.Minute)
				began := time.Now()
				require.NoError(t, r.Close())
				require.LessOrEqual(t, time.Since(began), 2*time.Second)
				require.EqualValues(t, 300, r.Dropped())
				require.EqualValues(t, 300, told(t, &log))
				r.Record(call("late"))
				require.EqualValues(t, 301, r.Dropped())
				require.EqualValues(t, 301, told(t, &log))
			})
		})
	}
}

func TestManyRecordAtOnce(t *testing.T) {
	s := &store{}
	r := usage.NewRecorder(usage.Options{Store: s, Log: zerolog.New(io.Discard)})
	var calls sync.WaitGroup
	for i := range 20 {
		calls.Go(func() {
			for j := range 100 {
				r.Record(call(fmt.Sprint(i, "-", j)))
				if j%50 == 0 {
					_, err := r.Report(t.Context(), "1h", "chat")
					require.NoError(t, err)
				}
			}
		})
	}
	calls.Wait()
	require.NoError(t, r.Close())
	report, err := r.Report(t.Context(), "1h", "backend")
	require.NoError(t, err)
	require.EqualValues(t, 2000, report.Total.Calls)
}

func TestWithoutAStoreTheProcessRemembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		r := usage.NewRecorder(usage.Options{})
		for i := range 2 {
			time.Sleep(time.Minute)
			r.Record(call(fmt.Sprint(i)))
		}
		report, err := r.Report(t.Context(), "1h", "")
		require.NoError(t, err)
		require.EqualValues(t, 2, report.Total.Calls)
		require.True(t, report.Process)
		require.False(t, report.Degraded)
		require.True(t, report.Oldest.Equal(began), "nothing is missing since it began")
		for i := range room - 2 {
			r.Record(call(fmt.Sprint("more", i)))
		}
		for i := range 2 {
			time.Sleep(time.Minute)
			r.Record(call(fmt.Sprint("later", i)))
		}
		report, err = r.Report(t.Context(), "1h", "")
		require.NoError(t, err)
		require.EqualValues(t, room, report.Total.Calls)
		require.True(t, report.Oldest.Equal(began.Add(2*time.Minute)), "what is gone is told")
		report, err = r.Report(t.Context(), "90s", "")
		require.NoError(t, err)
		require.EqualValues(t, 2, report.Total.Calls)
		require.Zero(t, r.Dropped())
		require.NoError(t, r.Close())
	})
}

func TestAStoreThatCannotBeReadLeavesTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{records: []usage.Record{{At: time.Now(), RequestID: "of another process", Backend: "glm"}}}
		r := usage.NewRecorder(usage.Options{Store: s})
		r.Record(call("a"))
		sleep(time.Second)
		report, err := r.Report(t.Context(), "1h", "backend")
		require.NoError(t, err)
		require.False(t, report.Process)
		require.EqualValues(t, 2, report.Total.Calls)
		s.becomes(errAway)
		report, err = r.Report(t.Context(), "1h", "backend")
		require.NoError(t, err)
		require.True(t, report.Process)
		require.True(t, report.Degraded)
		require.EqualValues(t, 1, report.Total.Calls, "half a store is not added to it")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = r.Report(ctx, "1h", "backend")
		require.ErrorIs(t, err, context.Canceled)
		s.becomes(nil)
		require.NoError(t, r.Close())
	})
}

func TestNamesOfClientsAreBounded(t *testing.T) {
	r := usage.NewRecorder(usage.Options{})
	rec := call("a")
	rec.UpstreamModel = strings.Repeat("я", 1000) + "\xff"
	r.Record(rec)
	report, err := r.Report(t.Context(), "1h", "model")
	require.NoError(t, err)
	require.Equal(t, strings.Repeat("я", 80), report.Rows[0].Name)
}

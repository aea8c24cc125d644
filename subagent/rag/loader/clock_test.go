package loader

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/subagent/rag/loader/pdfium"
)

func TestTheClockStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := Limits{Time: time.Minute}.deadline(t.Context())
		defer cancel()
		time.Sleep(30 * time.Second)
		stand(ctx)
		time.Sleep(time.Hour)
		resume(ctx)
		time.Sleep(29 * time.Second)
		synctest.Wait()
		require.NoError(t, ctx.Err())
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.ErrorContains(t, context.Cause(ctx), "takes longer than 1m0s")
	})
}

// Compiling the engine and waiting for others cost a file nothing, and end with the caller's context.
func TestWaitingForTheEngineIsNoReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := pdfium.New(userCache())
		var others []*pdfium.Document
		for range max(2, runtime.GOMAXPROCS(0)) {
			d, err := engine.Document(t.Context())
			require.NoError(t, err)
			others = append(others, d)
		}
		load := func(ctx context.Context, done chan<- error) {
			l := Loader{PDF: engine, Limits: Limits{Time: time.Minute}}
			_, err := l.Load(ctx, "a.pdf", "", strings.NewReader(makePDF(page("some text"))))
			done <- err
		}
		patient, gone := make(chan error, 1), make(chan error, 1)
		go load(t.Context(), patient)
		ctx, cancel := context.WithCancel(t.Context())
		go load(ctx, gone)
		time.Sleep(time.Hour)
		require.Empty(t, patient)
		cancel()
		require.ErrorIs(t, <-gone, context.Canceled)
		for _, d := range others {
			d.Close()
		}
		require.NoError(t, <-patient)
		engine.Close()
	})
}

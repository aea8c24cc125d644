package bench

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every row is measured and judged; what the figures are is the machine's affair.
func TestRetrievalMeasuresEveryRow(t *testing.T) {
	report, err := Retrieval(t.Context(), RetrievalOptions{Small: 50, Large: 130, Queries: 20, Changes: 5})
	require.NoError(t, err)
	judged := 0
	for _, row := range report.Rows {
		if row.Met != nil {
			require.Equal(t, row.Measured <= row.AtMost, *row.Met)
			judged++
		}
	}
	require.Len(t, report.Rows, 15)
	require.Equal(t, 14, judged)
	var b bytes.Buffer
	require.NoError(t, report.WriteText(&b))
	require.Regexp(t, `50 +a document replaced and seen so, 95 of 100 +\S+ ms +≤ 50 ms +(yes|no)\n`, b.String())
	require.Regexp(t, `130 +heap held by the index +\S+ MB +≤ 200 MB +yes\n`, b.String())
	require.Regexp(t, `130 +search behind one that 99 of 100 pass ÷ without, medians +\S+ × +≤ 2 × +(yes|no)\n`, b.String())
}

func TestRetrievalStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Retrieval(ctx, RetrievalOptions{})
	require.EqualError(t, err, "stopped before the end; an incomplete run is not shown")
}

func TestTextsAreTheSameInEveryRun(t *testing.T) {
	one, other := newTexts(), newTexts()
	require.Equal(t, one.document(7, 3), other.document(7, 3))
	require.Len(t, one.document(8, 3).Passages, 3)
	other.document(8, 3)
	for range 2 {
		require.Equal(t, one.query(), other.query())
	}
}

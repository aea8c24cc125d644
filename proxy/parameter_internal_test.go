package proxy

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/proxy/sanitize"
)

// Clients choose the names of models, so what is learned of them is bounded.
func TestLessonsAreBounded(t *testing.T) {
	var l lessons
	for m := range 3 * maxLessons {
		l.add(fmt.Sprint("m", m), func(*lesson) {})
		require.LessOrEqual(t, len(l.known), maxLessons)
	}
	for p := range 3 * maxRefusals {
		l.add("m", func(known *lesson) { known.refuse(sanitize.Refusal{Name: fmt.Sprint("p", p)}) })
	}
	kept := l.of("m").refusals
	require.Len(t, kept, maxRefusals)
	require.True(t, slices.ContainsFunc(kept, func(r sanitize.Refusal) bool {
		return r.Name == fmt.Sprint("p", 3*maxRefusals-1)
	}), "the newest stays")
	l.add("m", func(known *lesson) { known.refuse(kept[3]) })
	require.Len(t, l.of("m").refusals, maxRefusals, "one that is known is not added again")
	require.Equal(t, kept, l.of("m").refusals)
}

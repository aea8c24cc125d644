package upstreamtest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// However large responses are, the newest can be gone on from, and all of them fit into what may be kept.
func TestPersistedResponsesAreBounded(t *testing.T) {
	m := newItemMemory(10)
	for _, id := range []string{"a", "b", "c"} {
		m.persist(id, []members{}, maxKept/2+1)
	}
	for id, want := range map[string]bool{"a": false, "b": false, "c": true} {
		_, ok := m.response(id)
		require.Equal(t, want, ok, id)
	}
}

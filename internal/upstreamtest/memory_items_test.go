package upstreamtest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// However large responses are, the newest can be gone on from, and all of them fit into what may be kept.
func TestPersistedResponsesAreBounded(t *testing.T) {
	v := New(Config{})
	for _, id := range []string{"a", "b", "c"} {
		v.responses.add(map[string][]members{id: {}}, maxKept/2+1)
	}
	for id, want := range map[string]bool{"a": false, "b": false, "c": true} {
		require.Equal(t, want, v.responses.get(id) != nil, id)
	}
}

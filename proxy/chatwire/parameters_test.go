package chatwire

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// The tables of the documentation name every parameter that these tables do.
func TestEveryParameterIsDocumented(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "dialects.md"))
	require.NoError(t, err)
	for _, table := range []Parameters{chatParameters, messagesParameters} {
		for _, name := range slices.Sorted(maps.Keys(table)) {
			require.Contains(t, string(doc), "`"+name+"`", "docs/dialects.md")
		}
	}
}

package responseswire

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// The table of the documentation names every parameter, item and tool that these tables do.
func TestEveryParameterIsDocumented(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "dialects.md"))
	require.NoError(t, err)
	names := slices.Collect(maps.Keys(responsesParameters))
	names = slices.AppendSeq(names, maps.Keys(refusedIncludes))
	for _, name := range append(names, ignoredTools...) {
		require.Contains(t, string(doc), "`"+name+"`", "docs/dialects.md")
	}
	for _, name := range silentItems {
		if len(name) < 4 || name[:4] != "mcp_" { // they are named together
			require.Contains(t, string(doc), "`"+name+"`", "docs/dialects.md")
		}
	}
}

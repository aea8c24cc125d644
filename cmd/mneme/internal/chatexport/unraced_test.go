//go:build !race

package chatexport_test

import (
	"archive/zip"
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
)

// An archive that unfolds to far more than it is does not fill the memory.
func TestAnArchiveThatUnfoldsWithoutEnd(t *testing.T) {
	testtier.Slow(t)
	for name, before := range map[string]string{"a text": `[{"title":"`, "white space": "[", "depth": "["} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			z := zip.NewWriter(&b)
			w, err := z.Create("conversations.json")
			require.NoError(t, err)
			_, err = w.Write([]byte(before))
			require.NoError(t, err)
			filler := map[string]string{"a text": "a", "white space": " ", "depth": "["}[name]
			block := []byte(strings.Repeat(filler, 1<<20))
			for range 130 {
				_, err = w.Write(block)
				require.NoError(t, err)
			}
			require.NoError(t, z.Close())
			require.Less(t, b.Len(), 1<<20)
			_, _, err = read("chatgpt", b.String())
			require.Error(t, err)
			if name != "depth" { // which JSON itself bounds
				require.ErrorContains(t, err, "128 MiB")
			}
		})
	}
}

//go:build !race

package chatexport_test

import (
	"archive/zip"
	"bytes"
	"fmt"
	"runtime"
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

// Messages without content take little memory, in the tree of ChatGPT and in the list of Claude.
func TestEmptyMessagesTakeLittleMemory(t *testing.T) {
	testtier.Slow(t)
	for service, text := range map[string]string{
		"chatgpt": `[{"id":"a","current_node":"1","mapping":{` + numbered(`"%d":{}`, 1_000_000) + `}}]`,
		"claude":  `[{"uuid":"a","chat_messages":[` + strings.Repeat("{},", 3_000_000) + `{}]}]`,
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, broken, err := read(service, text)
		runtime.ReadMemStats(&after)
		require.NoError(t, err)
		require.Len(t, broken, 1)
		require.Contains(t, broken[0], "more than 200000 messages")
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(600<<20), service)
	}
}

func numbered(format string, n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(format, i)
	}
	return strings.Join(all, ",")
}

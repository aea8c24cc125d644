package memory_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/memory"
)

// What is said behind a message's text of its images is taken off again, and nothing else is; it is the same for the
// same images, and shows no signature of an address.
func TestTheTextOfAMessageWithImages(t *testing.T) {
	images, err := memory.ReadImages([]string{"data:image/png;base64,iVBORw0KGgo=", "https://x.example/a%20b.png?sig=secret#x",
		"data:image/gif;base64,R0lGODlh" + strings.Repeat("AAAA", 5_000)})
	require.NoError(t, err)
	const lines = "[image: image/png, 8 B]\n[image: https://x.example/a%20b.png]\n[image: image/gif, 15 kB]"
	for _, text := range []string{"", "a", " a ", "\n", "a\n\n", lines, "a\n\n" + lines, "[image: image/png, 8 B]"} {
		with := memory.WithImages(text, images)
		require.True(t, strings.HasSuffix(with, lines))
		require.NotContains(t, with, "secret")
		require.Equal(t, text, memory.WithoutImages(with, images))
		require.Equal(t, text, memory.WithImages(text, nil))
		require.Equal(t, text, memory.WithoutImages(text, nil))
	}
}

// Other programs store what they like as images: the message is read all the same.
func TestImagesOfOtherWriters(t *testing.T) {
	for raw, want := range map[string]int{
		`{"role":"user","content":"a","images":["x"]}`:                     0,
		`{"role":"user","content":"a","images":7}`:                         0,
		`{"role":"user","content":"a","images":null}`:                      0,
		`{"role":"user","content":["a"],"images":[{"url":"https://x/y"}]}`: 1,
	} {
		var m memory.Message
		require.NoError(t, json.Unmarshal([]byte(raw), &m), raw)
		require.Equal(t, "a", m.Content, raw)
		require.Len(t, m.Images, want, raw)
	}
}

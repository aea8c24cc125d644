//go:build !race

// What moves millions of bytes through one request is tested without the race detector, which takes ten times as long
// and finds nothing in it that the same way with less does not show.

package app_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
	"mneme/internal/upstreamtest"
	"mneme/memory"
)

// buildFlags lists extra build flags for the service processes.
var buildFlags []string

// A message has as many bytes of images as are taken, each as large as is taken.
func TestTheLargestImagesAreSeen(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	vendor, u := seeing(t, "openai", upstreamtest.Config{Vendor: upstreamtest.Chat})
	var large []string
	for i := range memory.MaxAllImages / memory.MaxImage {
		large = append(large, pngOf(fmt.Sprint(i), memory.MaxImage))
	}
	status, got := u.post("/v1/chats/1/messages", map[string]any{"message": "And these?", "images": large})
	require.Equal(t, 200, status, got)
	require.Equal(t, large, imagesIn(vendor.Last().Body))
	require.Empty(t, vendor.Rejections())
}

// More than that is refused before anything is stored.
func TestImagesThatAreTooLarge(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	vendor, u := seeing(t, "openai", upstreamtest.Config{Vendor: upstreamtest.Chat})
	five := make([]string, memory.MaxAllImages/memory.MaxImage+1)
	for i := range five {
		five[i] = pngOf(fmt.Sprint(i), memory.MaxImage)
	}
	refused(t, vendor, u, map[string]refusal{
		"one":     {[]string{pngOf("x", memory.MaxImage+1)}, 413, "number 1 has more than 5242880 bytes"},
		"as such": {[]string{pngOf("x", 40<<20)}, 413, "larger than"},
		"in all":  {five, 413, "than"},
	})
}

// A pasted document that no model of the vendor could read is answered, from what
// fits of it, and so is everything that is said after it. What is stored is whole.
func TestALongPasteKillsNoChat(t *testing.T) {
	t.Parallel()
	testtier.Slow(t)
	paste := "MINUTES " + strings.Repeat("The committee met and talked about the harbour, the lighthouse and the ferry. ",
		7000) + "END. Who met?"
	require.Greater(t, len(paste), 540_000)
	for name, s := range map[string]*small{
		"Anthropic":               {kind: "anthropic", limit: 14_000},
		"OpenAI":                  {kind: "openai", limit: 14_000, refuse: openAIs},
		"DeepSeek":                {kind: "openai", limit: 14_000, refuse: deepSeeks},
		"llama.cpp":               {kind: "openai", limit: 8_192, refuse: llamas},
		"without numbers":         {kind: "openai", limit: 9_000, refuse: groqs},
		"an allowance per minute": {kind: "openai", limit: 12_000, refuse: perMinute, forgets: true},
	} {
		t.Run(name, func(t *testing.T) {
			u := start(t, s.start(t)...)
			require.Equal(t, "Understood.", u.say("1", "My name is Ann."))
			require.Equal(t, "Understood.", u.say("1", paste))
			require.Contains(t, string(s.vendor.Last().Body), " characters) …")
			require.Contains(t, string(s.vendor.Last().Body), "END. Who met?")
			refused := s.refused.Load()
			require.NotZero(t, refused, "this vendor's limit was met")
			require.LessOrEqual(t, refused, int64(3))
			for i := range 4 {
				require.Equal(t, "Understood.", u.say("1", fmt.Sprintf("And what is point %d?", i)))
			}
			if !s.forgets {
				require.Equal(t, refused, s.refused.Load(), "the limit is remembered")
			}
			status, body := u.request(http.MethodGet, "/v1/chats/1/history", "", "")
			require.Equal(t, http.StatusOK, status)
			require.Contains(t, body, paste)
		})
	}
}

// A budget for 100 calls, and 4,000 at once.
func TestABudgetHoldsOverGateways(t *testing.T) {
	if testing.Short() {
		t.Skip("four gateways and thousands of calls")
	}
	t.Parallel()
	aBudgetHoldsOverGateways(t, 1000)
}

// With the race detector a part of them is tried.
func TestNoTrickReachesTheUser(t *testing.T) { noTrickReachesTheUser(t, 1) }

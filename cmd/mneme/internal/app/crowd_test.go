package app_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"mneme/internal/upstreamtest"
)

// Many answers that stream at once need two descriptors each, the client's connection and
// the vendor's, and all of them are completed.
func TestManyAnswersAtOnceUnderALimitOfDescriptors(t *testing.T) {
	t.Parallel()
	const answers, files = 100, 3 * 100
	let := make(chan struct{})
	vendor := httptest.NewServer(upstreamtest.New(upstreamtest.Config{
		Vendor: upstreamtest.Chat,
		Answer: func(*upstreamtest.Request) *upstreamtest.Answer {
			a := upstreamtest.Reply(upstreamtest.Say("All of it, from the first word to the last."))
			return &a
		},
		Stream: upstreamtest.StreamOptions{Pause: func(ctx context.Context, n int) {
			if n != 2 { // it holds its answer when some of it was said
				return
			}
			select {
			case <-let:
			case <-ctx.Done():
			}
		}},
	}))
	t.Cleanup(vendor.Close)
	s := newStack(t, "MNEME_PROXY_ACTIVE=v", backend("v", "openai", vendor.URL+"/v1"))
	s.files = files
	s.start("up")

	var open, over sync.WaitGroup
	open.Add(answers)
	for i := range answers {
		over.Go(func() {
			opened := sync.OnceFunc(open.Done)
			defer opened()
			told, err := s.follow(fmt.Sprintf("crowd-%d", i), func(told string) {
				if strings.Contains(told, "event: assistant_delta") {
					opened()
				}
			})
			if err != nil || !strings.Contains(told, `"outcome":"completed"`) ||
				!strings.Contains(told, "the first word to the last.") {
				t.Error(i, err, told)
			}
		})
	}
	open.Wait()
	close(let)
	over.Wait()
}

// follow posts a message and reads the stream; see is shown what has come so far.
func (s *stack) follow(chat string, see func(told string)) (string, error) {
	body := strings.NewReader(`{"message": "Say all of it", "stream": true}`)
	resp, err := http.Post("http://"+s.web+"/v1/chats/"+chat+"/messages", "application/json", body)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var told strings.Builder
	for piece := make([]byte, 4<<10); ; {
		n, err := resp.Body.Read(piece)
		told.Write(piece[:n])
		see(told.String())
		if err == io.EOF {
			return told.String(), nil
		}
		if err != nil {
			return told.String(), err
		}
	}
}

package openaimodel

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// EraseConversation has the gateway at base forget a conversation on all its routes.
// A server that keeps none, and so knows no such request, has nothing to forget.
// A nil client is http.DefaultClient.
func EraseConversation(ctx context.Context, client *http.Client, base, id string) error {
	return ofConversation(ctx, client, http.MethodDelete, base, id, "", nil, "erase")
}

// EraseTenant has the gateway at base forget some conversations of the tenant that the client asks for, and says how many
// it erased, and how many are left: it is to be called again until none is. A server that keeps none, and so knows no
// such request, has nothing to forget.
func EraseTenant(ctx context.Context, client *http.Client, base string) (erased, remaining int, err error) {
	var out struct{ Erased, Left int }
	if err := ask(ctx, client, http.MethodDelete, base, "/v1/conversations", nil, &out); err != nil {
		return 0, 0, fmt.Errorf("erase conversations: %w", err)
	}
	return out.Erased, out.Left, nil
}

// KeepConversation has the gateway at base keep a conversation on all its routes until a time at
// least, which may be up to 8 days from now. A server that keeps none, and so knows no such request,
// has nothing to keep. A nil client is http.DefaultClient.
func KeepConversation(ctx context.Context, client *http.Client, base, id string, until time.Time) error {
	body := strings.NewReader(fmt.Sprintf(`{"until":%d}`, until.Unix()))
	return ofConversation(ctx, client, http.MethodPut, base, id, "/keep", body, "keep")
}

func ofConversation(ctx context.Context, client *http.Client, method, base, id, path string, body io.Reader,
	what string) error {
	if err := ask(ctx, client, method, base, "/v1/conversations/"+url.PathEscape(id)+path, body, nil); err != nil {
		return fmt.Errorf("%s conversation %s: %w", what, id, err)
	}
	return nil
}

// ask sends a request to the gateway at base and decodes the answer into out, if that is not nil. If the server does not
// know the request, out stays as it is. A nil client is http.DefaultClient.
func ask(ctx context.Context, client *http.Client, method, base, path string, body io.Reader, out any) error {
	r, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(base, "/")+path, body)
	if err != nil {
		return err
	}
	resp, err := cmp.Or(client, http.DefaultClient).Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotFound, resp.StatusCode == http.StatusMethodNotAllowed:
		return nil
	case resp.StatusCode/100 != 2:
		return fmt.Errorf("the gateway answered with status %d", resp.StatusCode)
	case out == nil:
		return nil
	}
	return json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(out)
}

package openaimodel

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// EraseConversation has the gateway at base forget a conversation on all its routes.
// A server that keeps none, and so knows no such request, has nothing to forget.
// A nil client is http.DefaultClient.
func EraseConversation(ctx context.Context, client *http.Client, base, id string) error {
	if client == nil {
		client = http.DefaultClient
	}
	at := strings.TrimRight(base, "/") + "/v1/conversations/" + url.PathEscape(id)
	r, err := http.NewRequestWithContext(ctx, http.MethodDelete, at, nil)
	if err != nil {
		return fmt.Errorf("erase conversation %s: %w", id, err)
	}
	resp, err := client.Do(r)
	if err != nil {
		return fmt.Errorf("erase conversation %s: %w", id, err)
	}
	_ = resp.Body.Close()
	switch {
	case resp.StatusCode/100 == 2, resp.StatusCode == http.StatusNotFound, resp.StatusCode == http.StatusMethodNotAllowed:
		return nil
	}
	return fmt.Errorf("erase conversation %s: the gateway answered with status %d", id, resp.StatusCode)
}

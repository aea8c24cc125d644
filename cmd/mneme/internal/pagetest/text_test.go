package pagetest

import (
	"encoding/json"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

// What people, models and tools say is text wherever it is shown, whatever it contains.
func TestTextIsOnlyText(t *testing.T) {
	_, s, p := visit(t)
	post := func(method, path string, status int, body any) {
		raw, err := json.Marshal(body)
		require.NoError(t, err)
		s.request(status, method, path, "application/json", string(raw))
	}
	post("POST", "/v1/chats/evil/messages", http.StatusOK, map[string]any{
		"message":  "ask both about " + hostile("message"),
		"metadata": map[string]string{hostile("n")[:40]: hostile("metadata of a message")}})
	post("PATCH", "/v1/chats/evil", http.StatusOK, map[string]any{"title": hostile("title"),
		"metadata": map[string]string{"x": hostile("metadata")}})
	post("POST", "/v1/chats/evil/notes", http.StatusCreated, map[string]string{"text": hostile("note")})
	post("PUT", "/v1/chats/evil/documents/"+url.PathEscape("<img src=x onerror=window.hurt='name'>.txt"),
		http.StatusCreated, map[string]string{"title": hostile("document"), "text": hostile("text of a document")})
	for view, shown := range map[string]string{
		"#/chats/evil": hostile("message"), "#/memory/evil": hostile("message"), "#/memory/evil/analytic": hostile("message"),
		"#/memory/evil/~notes": hostile("note"), "#/runs/evil": hostile("title")[:60],
	} {
		p.open(view)
		p.sees(shown)
		evaluate[bool](p, `document.querySelectorAll("summary, [aria-expanded=false]").forEach(e => e.click()), true`)
	}
	p.excuse("the server responded with a status of 400", "the server responded with a status of 404")
	for _, view := range []string{"chats", "memory", "documents", "runs"} {
		p.open("#/" + view + "/" + url.PathEscape(hostile("address")))
		p.sees("mneme")
		p.until("a refusal", func() bool {
			return evaluate[bool](p, `Boolean(document.querySelector(".problem[title^=bad_], .problem[title^=unknown_]"))`)
		})
	}
	p.open("#/chats/evil")
	p.sees("They say: ")
	require.False(t, evaluate[bool](p, "'hurt' in window"))
	require.Zero(t, evaluate[int](p, `document.querySelectorAll("main img, main svg[onload], main script, main a[href^='javascript']").length`))
}

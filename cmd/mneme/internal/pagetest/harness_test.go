package pagetest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a test of the page stands on: a fault of the page is noticed, and what a person can do is done.
func TestFaultsOfAPageAreNoticed(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		if r.URL.Path == "/bad" {
			w.Header().Set("Content-Security-Policy",
				"default-src 'none'; connect-src *; style-src 'unsafe-inline'; script-src 'nonce-1'")
			fmt.Fprint(w, `<!doctype html><title>bad</title><script>window.hurt = 1</script>
				<script nonce="1">console.error("an error"); fetch("http://localhost:1/").catch(() => {}); nothing.at.all</script>
				<button></button><p style="width: 500px; color: #777; background: #888">wide</p>`)
			return
		}
		fmt.Fprint(w, `<!doctype html><html lang="en"><link rel="icon" href="data:,"><title>good</title><main><h1>Good</h1>
			<label>Name <input></label> <button>Greet</button><p></p></main><script>
			document.querySelector("button").onclick = () => setTimeout(() => {
				document.querySelector("p").textContent = "Hello, " + document.querySelector("input").value }, 50)</script>`)
	}))
	t.Cleanup(s.Close)
	good := newTab(t, s.URL)
	good.open("")
	good.write("Name", "Tuya")
	good.click("button", "Greet")
	good.sees("Hello, Tuya")
	require.Empty(t, good.barriers())

	bad := newTab(t, s.URL)
	bad.excuse("favicon", "ERR_CONNECTION", "Failed to load")
	bad.open("bad")
	for _, fault := range []string{"Content Security Policy", "an error", "localhost:1", "nothing is not defined"} {
		bad.until(fault, func() bool {
			before := len(bad.known())
			bad.forgive(fault)
			return len(bad.known()) < before
		})
	}
	require.False(t, evaluate[bool](bad, "'hurt' in window"))
	barriers := strings.Join(bad.barriers(), "\n")
	require.Contains(t, barriers, "light: html-has-lang")
	require.Contains(t, barriers, "light: button-name")
	require.Contains(t, barriers, "dark: color-contrast")
	require.Contains(t, barriers, "too wide for a phone: <p")
}

package web_test

import (
	"compress/gzip"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/webmemory/web"
)

func get(t *testing.T, path string, header ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	if !web.Serve(w, r) {
		require.Empty(t, w.Header())
		return nil
	}
	return w.Result()
}

func body(t *testing.T, r *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return string(text)
}

// each calls f with every file of the page.
func each(t *testing.T, f func(name, text string)) {
	t.Helper()
	static := os.DirFS("static")
	require.NoError(t, fs.WalkDir(static, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(static, name)
		f(name, string(text))
		return err
	}))
}

func TestEveryFileIsServed(t *testing.T) {
	each(t, func(name, text string) {
		r := get(t, "/ui/"+name)
		require.Equal(t, http.StatusOK, r.StatusCode, name)
		require.Equal(t, text, body(t, r), name)
		require.NotEmpty(t, r.Header.Get("Content-Type"), name)
		for _, rule := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'",
			"img-src 'self' data:", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"} {
			require.Contains(t, r.Header.Get("Content-Security-Policy"), rule, name)
		}
		require.NotContains(t, r.Header.Get("Content-Security-Policy"), "unsafe")
		require.Equal(t, "nosniff", r.Header.Get("X-Content-Type-Options"))
		require.Equal(t, "no-referrer", r.Header.Get("Referrer-Policy"))

		packed := get(t, "/ui/"+name, "Accept-Encoding", "gzip, br")
		unpacked, err := gzip.NewReader(packed.Body)
		require.NoError(t, err)
		plain, err := io.ReadAll(unpacked)
		require.NoError(t, err)
		require.Equal(t, text, string(plain), name)
		require.NotEqual(t, r.Header.Get("ETag"), packed.Header.Get("ETag"))

		known := get(t, "/ui/"+name, "If-None-Match", r.Header.Get("ETag"))
		require.Equal(t, http.StatusNotModified, known.StatusCode, name)
		require.Empty(t, body(t, known))
	})
	index := get(t, "/")
	require.Equal(t, "text/html; charset=utf-8", index.Header.Get("Content-Type"))
	require.Equal(t, body(t, get(t, "/ui/index.html")), body(t, index))
	for _, wrong := range []string{"/ui/", "/ui/vendor", "/ui/../web.go", "/ui/none.js", "/index.html", "/ui//index.html"} {
		require.Nil(t, get(t, wrong), wrong)
	}
}

// maxSize bounds what a browser loads of the page, in bytes as they are sent.
const maxSize = 150_000

func TestThePageIsSmall(t *testing.T) {
	sum := 0
	each(t, func(name, _ string) {
		if !strings.HasSuffix(name, ".txt") { // which no browser loads
			sum += len(body(t, get(t, "/ui/"+name, "Accept-Encoding", "gzip")))
		}
	})
	t.Logf("%d bytes", sum)
	require.Less(t, sum, maxSize)
}

// What the page is made of names nothing that is elsewhere, has no script or style in HTML, and never sets HTML.
func TestThePageLoadsItsOwnFilesOnly(t *testing.T) {
	elsewhere := regexp.MustCompile(`(https?:)?//[a-zA-Z0-9-]+\.[a-zA-Z]`)
	html := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|dangerouslySet|document\.write|\beval\b|new Function`)
	imports := regexp.MustCompile(`(?:from|import) ?"([^"]+)"`)
	each(t, func(name, text string) {
		for _, m := range imports.FindAllStringSubmatch(text, -1) {
			require.True(t, strings.HasPrefix(m[1], "."), "%s imports %s", name, m[1])
			require.NotNil(t, get(t, path.Join("/ui", path.Dir(name), m[1])), "%s imports %s", name, m[1])
		}
		if strings.HasPrefix(name, "vendor/") {
			return
		}
		text = strings.ReplaceAll(text, "http://www.w3.org/2000/svg", "") // the name of a kind, not an address
		require.Empty(t, elsewhere.FindAllString(text, -1), name)
		require.Empty(t, html.FindAllString(text, -1), name)
	})
	index := body(t, get(t, "/"))
	require.NotRegexp(t, `<style|style=| on[a-z]+=|<script>`, index)
	for _, m := range regexp.MustCompile(`(?:src|href)="([^"]+)"`).FindAllStringSubmatch(index, -1) {
		require.NotNil(t, get(t, "/"+m[1]), m[1])
	}
}

// Every text that is shown is there in both languages.
func TestEveryTextIsKnown(t *testing.T) {
	known := map[string]bool{}
	defined := regexp.MustCompile(`(?m)^\s*"?([a-z][a-zA-Z0-9_.]*)"?: \[\s*(?:"|\{)`)
	each(t, func(name, text string) {
		if strings.HasSuffix(name, ".js") {
			for _, m := range defined.FindAllStringSubmatch(text, -1) {
				known[m[1]] = true
			}
		}
	})
	require.NotEmpty(t, known)
	used := regexp.MustCompile(`\bt\("([^"]+)"[,)]`)
	each(t, func(name, text string) {
		for _, m := range used.FindAllStringSubmatch(text, -1) {
			require.True(t, known[m[1]], "%s shows %s", name, m[1])
		}
	})
}

// A brace that a merge loses would switch off all rules behind it, and no browser says so.
func TestTheStyleSheetIsWhole(t *testing.T) {
	sheet, err := os.ReadFile("static/style.css")
	require.NoError(t, err)
	for i, section := range strings.Split(string(sheet), "\n/* ") {
		require.Equal(t, strings.Count(section, "{"), strings.Count(section, "}"), "section %d: %.40s", i, section)
	}
}

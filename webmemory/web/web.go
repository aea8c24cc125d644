// Package web is the page that webmemory shows at GET /: a client of its public API that runs in a browser.
// What it is made of lies in static as it is served, so there is no build and no output of one. Its libraries
// are in static/vendor with their licences. The package owns these files, embedded, and their headers; the page never
// loads anything from elsewhere, and never does what a request to the API could not.
package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"
)

//go:embed static
var static embed.FS

// Folder is below which path the page's files are.
const Folder = "/ui/"

// policy lets the page load its own files and talk to its own origin, and nothing else. No script can make a
// page of text: it has no way to set HTML.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// types are those of the files, by their endings. They do not depend on what the machine knows.
var types = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".txt": "text/plain; charset=utf-8",
	".js": "text/javascript; charset=utf-8", ".mjs": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// file is one of the page's, as it is sent.
type file struct {
	kind        string
	plain, gzip []byte
	tag         string // of both, without quotes
}

// files are the page's by their paths. They are compressed when the first is asked for.
var files = sync.OnceValue(func() map[string]file {
	byPath := map[string]file{}
	err := fs.WalkDir(static, "static", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		plain, err := static.ReadFile(name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(plain)
		byPath[Folder+strings.TrimPrefix(name, "static/")] = file{
			kind: types[path.Ext(name)], plain: plain, gzip: compressed(plain), tag: hex.EncodeToString(sum[:8]),
		}
		return nil
	})
	if err != nil {
		panic("web: the embedded files cannot be read: " + err.Error())
	}
	byPath["/"] = byPath[Folder+"index.html"]
	return byPath
})

func compressed(plain []byte) []byte {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // which is a level
	_, _ = w.Write(plain)                                 // a buffer takes everything
	_ = w.Close()
	return b.Bytes()
}

// Serve answers a GET of / or of a file of the page. It says whether there is such a file, and writes nothing if
// there is none.
func Serve(w http.ResponseWriter, r *http.Request) bool {
	f, ok := files()[r.URL.Path]
	if !ok {
		return false
	}
	h := w.Header()
	h.Set("Content-Type", f.kind)
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-cache") // kept, and asked for again by its tag: the page is always of one version
	h.Set("Vary", "Accept-Encoding")
	body, tag := f.plain, f.tag
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		body, tag = f.gzip, tag+"-gzip"
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("ETag", `"`+tag+`"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
	return true
}

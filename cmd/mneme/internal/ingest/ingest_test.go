package ingest_test

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/apiserver/api"
	"mneme/cmd/mneme/internal/app"
	"mneme/cmd/mneme/internal/config"
	"mneme/cmd/mneme/internal/ingest"
	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/memory"
	"mneme/subagent/rag"
	"mneme/subagent/rag/docstore"
	webapi "mneme/webmemory/api"
)

// up is mneme with all services in this process and the offline model.
type up struct {
	t    *testing.T
	base string // the URL of webmemory
}

// start runs a mneme with these settings until the end of the test.
func start(t *testing.T, environ ...string) *up {
	t.Helper()
	cfg, err := config.Load("", append([]string{
		"MNEME_WEBMEMORY_LISTEN=127.0.0.1:0", "MNEME_APISERVER_LISTEN=127.0.0.1:0", "MNEME_PROXY_LISTEN=127.0.0.1:0",
		"MNEME_REDIS_EMBEDDED_LISTEN=127.0.0.1:0", "MNEME_DATA_DIR=" + t.TempDir(),
	}, environ...))
	require.NoError(t, err)
	at, stop, err := app.Start(context.Background(), app.Up, cfg, app.Options{Out: io.Discard,
		Log: zerolog.New(os.Stderr).Level(zerolog.WarnLevel)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, stop()) })
	return &up{t, "http://" + at.Webmemory}
}

func (u *up) request(method, path, contentType, body string) (status int, answer string) {
	u.t.Helper()
	req, err := http.NewRequest(method, u.base+path, strings.NewReader(body))
	require.NoError(u.t, err)
	req.Header.Set("Content-Type", contentType)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(u.t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(u.t, err)
	return resp.StatusCode, string(raw)
}

// heard is a Progress that keeps what it is told.
type heard struct {
	notes []string
	at    func() // is called before each file
}

func (h *heard) Files(int)           {}
func (h *heard) Outcome(rag.Outcome) {}
func (h *heard) Note(sentence string) {
	h.notes = append(h.notes, sentence)
}

func (h *heard) File(string) {
	if h.at != nil {
		h.at()
	}
}

// files puts files below dir; those without content are removed.
func files(t *testing.T, dir string, contents map[string]string) string {
	t.Helper()
	for name, content := range contents {
		path := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		if content == "" {
			require.NoError(t, os.Remove(path))
			continue
		}
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}
	return dir
}

// ingest loads paths into a collection as mneme ingest does.
func (u *up) ingest(o ingest.Options, paths ...string) ingest.Report {
	u.t.Helper()
	report, err := u.tryIngest(o, paths...)
	require.NoError(u.t, err)
	return report
}

func (u *up) tryIngest(o ingest.Options, paths ...string) (ingest.Report, error) {
	u.t.Helper()
	client, err := webapi.New(u.base)
	require.NoError(u.t, err)
	defer client.Close()
	client.Pause = time.Millisecond
	o.Paths = paths
	if o.Collection == "" {
		o.Collection = "docs"
	}
	if o.Progress == nil {
		o.Progress = &heard{}
	}
	return ingest.Run(u.t.Context(), client, o)
}

// stored are the documents of a collection by id.
func (u *up) stored(collection string) map[string]docstore.Document {
	u.t.Helper()
	all := map[string]docstore.Document{}
	for cursor := ""; ; {
		var page struct {
			Documents []docstore.Head `json:"documents"`
			Next      string          `json:"next_cursor"`
		}
		_, body := u.request("GET", "/v1/collections/"+collection+"/documents?limit=1000&cursor="+url.QueryEscape(cursor), "",
			"")
		require.NoError(u.t, json.Unmarshal([]byte(body), &page), body)
		for _, h := range page.Documents {
			var d docstore.Document
			_, body := u.request("GET", "/v1/collections/"+collection+"/documents/"+url.PathEscape(h.ID), "", "")
			require.NoError(u.t, json.Unmarshal([]byte(body), &d), body)
			all[h.ID] = d
		}
		if cursor = page.Next; cursor == "" {
			return all
		}
	}
}

// sameByEveryWay loads the files below dir by mneme ingest, by an upload of each one's
// bytes and by a line with the text that came of it, and compares what is stored. It
// gives the ids of the documents.
func (u *up) sameByEveryWay(dir string) []string {
	u.t.Helper()
	report := u.ingest(ingest.Options{Collection: "command"}, dir)
	u.request("PUT", "/v1/collections/bytes", "", "")
	refused := map[string]bool{}
	for _, r := range report.Skipped {
		refused[r.ID] = true
	}
	require.NoError(u.t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		id, _ := filepath.Rel(dir, path)
		switch {
		case err == nil && entry.IsDir() && refused[id]:
			return fs.SkipDir
		case err != nil || entry.IsDir() || refused[id]:
			return err
		}
		content, err := os.ReadFile(path)
		require.NoError(u.t, err)
		status, body := u.request("PUT", "/v1/collections/bytes/documents/"+url.PathEscape(id), "application/octet-stream",
			string(content))
		if status >= 400 {
			refused[id] = true
			require.True(u.t, slices.ContainsFunc(report.Refused, func(r ingest.Refusal) bool { return r.ID == id }),
				"only the upload of %s was refused: %s", id, body)
		}
		return nil
	}))
	for _, r := range report.Refused {
		require.True(u.t, refused[r.ID], "only mneme ingest refused %s: %s", r.ID, r.Reason)
	}
	u.request("PUT", "/v1/collections/lines", "", "")
	byCommand, byBytes := u.stored("command"), u.stored("bytes")
	require.Len(u.t, byBytes, len(byCommand))
	var lines bytes.Buffer
	e := json.NewEncoder(&lines)
	for id, d := range byCommand {
		other := byBytes[id]
		require.Contains(u.t, byBytes, id)
		d.Version, d.Hash, d.Origin, other.Version, other.Hash = 0, "", "", 0, ""
		require.Equal(u.t, other, d, "%s by command and by its bytes", id)
		require.NoError(u.t, e.Encode(api.Document{ID: id, Text: d.Text}))
	}
	status, body := u.request("POST", "/v1/collections/lines/documents", "application/x-ndjson", lines.String())
	require.Equal(u.t, http.StatusOK, status, body)
	byLine := u.stored("lines")
	require.Len(u.t, byLine, len(byCommand))
	for id, d := range byLine {
		require.Equal(u.t, byCommand[id].Text, d.Text, "%s as a line: its text is text", id)
		require.Equal(u.t, docstore.SourceFile{}, d.SourceFile, id)
	}
	return slices.Sorted(maps.Keys(byCommand))
}

// word is a Word document of one paragraph.
func word(t *testing.T, text string) string {
	t.Helper()
	var file bytes.Buffer
	z := zip.NewWriter(&file)
	part, err := z.Create("word/document.xml")
	require.NoError(t, err)
	_,
		err = io.WriteString(part,
		`<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body><w:p><w:r><w:t>`+text+
			`</w:t></w:r></w:p></w:body></w:document>`)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	return file.String()
}

// A file is read once, by the server, whichever way it comes: a reader that reads its own
// result again takes the first record of a table for its head, the text of a Word file for
// a damaged archive and an escaped tag for a tag.
func TestEveryWayStoresTheSame(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	u := start(t)
	dir := files(t, t.TempDir(), map[string]string{
		"presidents.csv": "president,appointee\nCarter,Rex Tillerson\nReagan,\"Haig, Alexander\"\n",
		"table.tsv":      "a\tb\n1\t2\n3\t4\n",
		"object.json":    `{"name": "mneme", "port": 8080}`,
		"record.json":    `{"title": "R", "text": "a,b\n1,2"}`,
		"array.json":     `[{"id": "x", "text": "one"}, {"text": "two"}]`,
		"lines.jsonl":    `{"id": "l1", "text": "<b>&lt;tag&gt;</b>"}` + "\n" + `{"text": "# no heading"}`,
		"page.html": "<html><body><h1>Tags</h1><p>Write &lt;script&gt; as &amp;lt;.</p><pre>a  " +
			"b\n\n\nc</pre></body></html>",
		"guide.md":                   "# Guide\n\nText with `<tag>` and\n\n```\ncode\n\n\nmore\n```\n",
		"plain.txt":                  "A first line.\n\n\n\nAnd \\ { [ are brackets.",
		"report.docx":                word(t, "A report about the harbour."),
		"odd %41 # ? ü & + name.txt": "An odd name.",
	})
	require.Len(t, u.sameByEveryWay(dir), 13)
	for _, text := range []string{"%PDF-1.7", "PK\x03\x04", "<html><b>", "{\\rtf", `{"text":"x"}`, "\ufeffGIF8"} {
		line, err := json.Marshal(api.Document{ID: "report.pdf", Text: text})
		require.NoError(t, err)
		status, body := u.request("POST", "/v1/collections/lines/documents", "", string(line))
		require.Equal(t, http.StatusOK, status, body)
		require.Equal(t, strings.TrimPrefix(strings.ReplaceAll(text, "\x03\x04", ""), "\ufeff"),
			u.stored("lines")["report.pdf"].Text)
	}
	require.Equal(t, "president: Carter\nappointee: Rex Tillerson",
		strings.Split(u.stored("command")["presidents.csv"].Text, "\n\n")[0])
}

// realFiles is a folder of real files that scripts/real-files built.
func realFiles(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("REAL_FILES")
	if dir == "" {
		t.Skip("needs a folder of real files: REAL_FILES=DIR names one that scripts/real-files DIR built")
	}
	return dir
}

// All real files are stored. Of each format, some are compared over every way of storing them.
func TestRealFilesAreStoredTheSameByEveryWay(t *testing.T) {
	t.Parallel()
	dir := realFiles(t)
	manifest, err := os.ReadFile(filepath.Join(dir, "MANIFEST.tsv"))
	require.NoError(t, err)
	formats, total := map[string]bool{}, 0
	sample := t.TempDir() // four files of each format
	taken := map[string]int{}
	for line := range strings.Lines(string(manifest)) {
		total++
		field := strings.Split(line, "\t")
		formats[field[1]] = false
		if taken[field[1]]++; taken[field[1]] > 4 {
			continue
		}
		to := filepath.Join(sample, filepath.FromSlash(field[0]))
		require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o700))
		content, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(field[0])))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(to, content, 0o600))
	}
	require.GreaterOrEqual(t, total, 200)
	require.GreaterOrEqual(t, len(formats), 12)
	u := start(t)
	u.sameByEveryWay(filepath.Join(sample, "files"))
	u.ingest(ingest.Options{Collection: "all"}, filepath.Join(dir, "files"))
	ids := slices.Collect(maps.Keys(u.stored("all")))
	for line := range strings.Lines(string(manifest)) {
		field := strings.Split(line, "\t")
		id := strings.TrimPrefix(field[0], "files/")
		if slices.Contains(ids, id) || slices.ContainsFunc(ids, func(s string) bool { return strings.HasPrefix(s, id+"/") }) {
			formats[field[1]] = true
		}
	}
	for format, loaded := range formats {
		require.True(t, loaded, "of %s nothing was loaded", format)
	}
}

func TestIngestFollowsADirectory(t *testing.T) {
	u := start(t)
	u.request("PUT", "/v1/collections/docs", "", "")
	u.request("PUT", "/v1/collections/docs/documents/uploaded.txt", "text/plain", "apples by hand")
	dir := files(t, t.TempDir(), map[string]string{
		"a.md": "# Fruit\n\napples", "sub/b.txt": "pears", "sub/c.txt": "quinces",
		"faq.jsonl": `{"id":"1","text":"plums"}` + "\n" + `{"id":"2","text":"cherries"}`, "broken.pdf": "no pdf",
		".hidden.txt": "secret",
	})
	r := u.ingest(ingest.Options{}, dir)
	require.Equal(t, []int{5, 0, 0, 0}, []int{r.New, r.Changed, r.Unchanged, r.Removed})
	require.Equal(t, "broken.pdf", r.Refused[0].ID)
	require.Equal(t, ".hidden.txt", r.Skipped[0].ID)
	r = u.ingest(ingest.Options{}, dir)
	require.Equal(t, []int{0, 0, 5, 0}, []int{r.New, r.Changed, r.Unchanged, r.Removed})

	files(t, dir, map[string]string{"a.md": "# Fruit\n\nbananas", "sub/b.txt": "",
		"faq.jsonl": `{"id":"2","text":"cherries"}` + "\n" + `{"id":"3","text":"figs"}`})
	r = u.ingest(ingest.Options{Keep: true}, dir)
	require.Equal(t, []int{1, 1, 2, 1, 1}, []int{r.New, r.Changed, r.Unchanged, r.Removed, r.Retained},
		"what a file holds no more is no file that is gone")
	require.Contains(t, u.stored("docs"), "sub/b.txt")
	r = u.ingest(ingest.Options{}, dir)
	require.Equal(t, []int{0, 0, 4, 1}, []int{r.New, r.Changed, r.Unchanged, r.Removed})
	require.Equal(t, []string{"a.md", "faq.jsonl/2", "faq.jsonl/3", "sub/c.txt", "uploaded.txt"},
		slices.Sorted(maps.Keys(u.stored("docs"))))

	// What cannot be read any more leaves what it was, a folder too.
	files(t, dir, map[string]string{"a.md": "\x00\x01\x02binary\x00\xff\xfe\x00"})
	require.NoError(t, os.Rename(filepath.Join(dir, "sub"), filepath.Join(dir, ".away")))
	require.NoError(t, os.Symlink(".away", filepath.Join(dir, "sub")))
	r = u.ingest(ingest.Options{}, dir)
	require.Zero(t, r.Removed)
	require.True(t, slices.ContainsFunc(r.Refused, func(f ingest.Refusal) bool { return f.ID == "a.md" && f.Stale }))
	require.Contains(t, u.stored("docs"), "sub/c.txt")
	require.Contains(t, u.stored("docs")["a.md"].Text, "bananas")
}

// Files of the same name do not take each other's place; a prefix sets them apart.
func TestFilesOfTheSameName(t *testing.T) {
	u := start(t)
	a := files(t, t.TempDir(), map[string]string{"readme.md": "of a", "a.md": "only a"})
	b := files(t, t.TempDir(), map[string]string{"readme.md": "of b", "b.md": "only b"})
	u.ingest(ingest.Options{}, a)
	conflict := func(r ingest.Report) string {
		require.Len(t, r.Refused, 1)
		require.Equal(t, "readme.md", r.Refused[0].ID)
		require.Equal(t, "conflict", r.Refused[0].Code)
		require.False(t, r.Refused[0].Stale)
		return r.Refused[0].Reason
	}
	require.Contains(t, conflict(u.ingest(ingest.Options{}, b)), a, "it says where the other one is from")
	require.Contains(t, conflict(u.ingest(ingest.Options{}, filepath.Join(b, "readme.md"))), a)
	require.Equal(t, "of a", u.stored("docs")["readme.md"].Text)
	require.Contains(t, conflict(u.ingest(ingest.Options{Collection: "other"}, a, b)), filepath.Join(a, "readme.md"),
		"also within one command")

	r := u.ingest(ingest.Options{Prefix: "b"}, b)
	require.Equal(t, []int{2, 1}, []int{r.New, r.Removed}, "its documents have other ids now")
	require.Equal(t, []string{"a.md", "b/b.md", "b/readme.md", "readme.md"}, slices.Sorted(maps.Keys(u.stored("docs"))))
	r = u.ingest(ingest.Options{Prefix: "b"}, b)
	require.Equal(t, 2, r.Unchanged)

	// The same file by itself and with its directory is the same file.
	r = u.ingest(ingest.Options{}, filepath.Join(a, "readme.md"))
	require.Empty(t, r.Refused)
	r = u.ingest(ingest.Options{}, a)
	require.Empty(t, r.Refused)
	// A directory that was moved is loaded by the name that it had.
	moved := filepath.Join(t.TempDir(), "moved")
	require.NoError(t, os.Rename(a, moved))
	require.Empty(t, u.ingest(ingest.Options{Origin: a}, moved).Refused)

	for _, bad := range []string{"/x", "x/", "a\x01b"} {
		_, err := u.tryIngest(ingest.Options{Prefix: bad}, b)
		require.Error(t, err, bad)
	}
}

// Of two that load different directories at the same time, one gets each id.
func TestTwoDirectoriesAtTheSameTime(t *testing.T) {
	u := start(t)
	var dirs []string
	for d := range 2 {
		contents := map[string]string{}
		for i := range 40 {
			contents[fmt.Sprintf("%d.txt", i)] = fmt.Sprintf("file %d of directory %d", i, d)
		}
		dirs = append(dirs, files(t, t.TempDir(), contents))
	}
	reports := make([]ingest.Report, 2)
	var loading sync.WaitGroup
	for d, dir := range dirs {
		loading.Go(func() { reports[d], _ = u.tryIngest(ingest.Options{}, dir) })
	}
	loading.Wait()
	require.Equal(t, 40, reports[0].New+reports[1].New)
	require.Equal(t, 40, len(reports[0].Refused)+len(reports[1].Refused))
	for id, d := range u.stored("docs") {
		require.Contains(t, dirs, d.Origin)
		require.Contains(t, d.Text, fmt.Sprintf("directory %d", slices.Index(dirs, d.Origin)), id)
	}
}

func TestMetadataOfTheCommand(t *testing.T) {
	u := start(t)
	dir := files(t, t.TempDir(), map[string]string{"a.md": "tea", "r.json": `{"text":"coffee","lang":"en","by":"me"}`})
	u.ingest(ingest.Options{}, dir)
	french := ingest.Options{Metadata: map[string]string{"lang": "fr", "a;b=c & d": "x=y;z"}}
	require.Equal(t, 2, u.ingest(french, dir).Changed)
	require.Equal(t, map[string]string{"lang": "fr", "a;b=c & d": "x=y;z", "by": "me"},
		u.stored("docs")["r.json"].Metadata)
	require.Equal(t, 2, u.ingest(french, dir).Unchanged)
	require.Equal(t, 2, u.ingest(ingest.Options{}, dir).Changed, "it is not said any more")
	require.Equal(t, map[string]string{"lang": "en", "by": "me"}, u.stored("docs")["r.json"].Metadata)
	r := u.ingest(ingest.Options{Metadata: map[string]string{"x": strings.Repeat("y", docstore.MaxMetadata)}}, dir)
	require.Equal(t, "bad_metadata", r.Refused[0].Code)
}

// A collection that no subagent searches is said before anything is loaded, and which
// ones are searched.
func TestAMisspeltCollection(t *testing.T) {
	u := start(t)
	dir := files(t, t.TempDir(), map[string]string{"a.md": "tea"})
	for range 2 { // it makes no difference whether it was there
		p := &heard{}
		p.at = func() { require.Len(t, p.notes, 1) }
		r := u.ingest(ingest.Options{Collection: "dcos", Progress: p}, dir)
		require.Contains(t, p.notes[0], "No subagent searches dcos; subagents search docs.")
		require.True(t, r.Unread)
		require.Equal(t, []string{"docs"}, r.Searched)
	}
	p := &heard{}
	require.False(t, u.ingest(ingest.Options{Progress: p}, dir).Unread)
	require.Empty(t, p.notes)
}

// A file that is written to while it is sent is never stored as half of two versions.
func TestAFileThatChangesOnItsWay(t *testing.T) {
	u := start(t)
	dir := files(t, t.TempDir(), map[string]string{"a.txt": "before", "b.txt": "steady", "c.txt": "leaves"})
	changed := &heard{}
	changed.at = func() {
		changed.at = nil
		files(t, dir, map[string]string{"a.txt": "a longer one", "c.txt": ""})
	}
	r := u.ingest(ingest.Options{Progress: changed}, dir)
	require.Equal(t, 1, r.New)
	require.Len(t, r.Refused, 1, "a file that is gone is nothing to complain about")
	require.Equal(t, "changed", r.Refused[0].Code)
	require.Equal(t, []string{"b.txt"}, slices.Sorted(maps.Keys(u.stored("docs"))))
	require.Equal(t, 1, u.ingest(ingest.Options{}, dir).New)
}

// What an older version loaded is loaded again though its file is the same.
func TestOutdatedDocumentsAreLoadedAgain(t *testing.T) {
	server := redistest.Start(t)
	u := start(t, "MNEME_REDIS_URL="+server.URL())
	dir := files(t, t.TempDir(), map[string]string{"t.csv": "name,age\nAda,36"})
	u.ingest(ingest.Options{}, dir)
	d := u.stored("docs")["t.csv"]
	text := d.Text
	d.Loader, d.Text = "1", "name: Ada: age: 36"
	d.Passages = nil
	c, err := docstore.NamedCollection(memory.Tenant{}, "docs")
	require.NoError(t, err)
	require.NoError(t, docstore.New(server.Client(), 0).Put(t.Context(), c, d)[0].Err)
	_, body := u.request("GET", "/v1/collections/docs/documents", "", "")
	require.Contains(t, body, `"outdated":true`)
	p := &heard{}
	require.Equal(t, 1, u.ingest(ingest.Options{Progress: p}, dir).Changed)
	require.Contains(t, p.notes[0], "1 document")
	require.Equal(t, text, u.stored("docs")["t.csv"].Text)
	require.Equal(t, 1, u.ingest(ingest.Options{}, dir).Unchanged)
}

package pagetest

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/dom"
	"github.com/stretchr/testify/require"
)

// choose puts files into the field for files, as its dialog does.
func (p *tab) choose(files map[string]string) {
	p.t.Helper()
	dir := p.t.TempDir()
	var paths []string
	for name, text := range files {
		path := filepath.Join(dir, name)
		require.NoError(p.t, os.WriteFile(path, []byte(text), 0o600))
		paths = append(paths, path)
	}
	p.until("a field for files", func() bool {
		document, err := ask(p, dom.GetDocument, dom.GetDocumentParams{})
		if err != nil {
			return false
		}
		field, err := ask(p, dom.QuerySelector, dom.QuerySelectorParams{NodeID: document.Root.NodeID,
			Selector: "input[type=file]"})
		if err != nil || field.NodeID == 0 {
			return false
		}
		_, err = ask(p, dom.SetFileInputFiles, dom.SetFileInputFilesParams{Files: paths, NodeID: field.NodeID})
		return err == nil
	})
}

// A collection is made, filled, searched, read and deleted.
func TestDocuments(t *testing.T) {
	t.Parallel()
	m := &model{}
	s := service{t, "http://" + run(t, "up", configuration(t), m.environ(t)...).Webmemory}
	p := newTab(t, s.url)
	p.open("#/documents")
	p.sees("No collections yet", "mneme ingest")
	require.Empty(t, p.barriers())
	p.click("button", "New collection")
	p.write("New collection", "shop")
	p.click("button", "Create")
	p.sees("No documents in it yet", "No subagent searches this collection", "Searched are: docs")
	p.click("button", "New collection")
	p.write("New collection", "docs")
	p.press("\r")
	p.sees("searched by knowledge")

	var lines strings.Builder
	for i := range 120 {
		fmt.Fprintf(&lines, `{"id": "%d", "text": "Lighthouse number %d stands on a rock."}`+"\n", i, i)
	}
	p.choose(map[string]string{
		"ferry.md":   "# Ferry\n\n## Tickets\n\nA ferry ticket costs 14 crowns.\n\n## Timetable\n\nThe last ferry leaves at 21:40.",
		"old.doc":    "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
		"many.jsonl": lines.String(),
		"<img src=x onerror=window.hurt='name'>.txt": hostile("text of a document") + " about whales",
	})
	p.sees("4 of 4 done, 1 refused", "120 new", "unsupported")
	p.sees("<img src=x onerror=window.hurt='name'>.txt", "122 documents")
	p.click("button", "Show more")
	p.sees("many.jsonl/99")
	require.Empty(t, p.barriers())

	p.write("Search in docs", "what does a ferry ticket cost")
	p.press("\r")
	p.sees("A ferry ticket costs 14 crowns.", "score ")
	require.Empty(t, p.barriers())
	p.click("link", "Ferry")
	p.sees("1 passage", "Passage 1", "The last ferry leaves at 21:40.")
	require.Contains(t, p.textOf(".aim"), "14 crowns")
	require.Empty(t, p.barriers())
	p.click("link", "To the collection")
	p.write("Search in docs", "whales")
	p.click("button", "Search")
	p.sees(hostile("text of a document"))
	p.write("Search in docs", "zeppelin")
	p.press("\r")
	p.sees("No passage has a word of it.")
	p.click("button", "Back to the documents")

	p.click("link", "Ferry")
	p.click("button", "Delete ferry.md?")
	p.sees("Delete Ferry?", "No search finds it")
	require.Empty(t, p.barriers())
	p.click("button", "Cancel")
	p.click("button", "Delete ferry.md?")
	p.click("button", "Delete")
	p.sees("121 documents")
	s.request(http.StatusNotFound, "GET", "/v1/collections/docs/documents/ferry.md", "", "")
	p.click("button", "Delete the collection docs?")
	p.sees("All its 121 documents go with it.")
	p.press("\x1b")
	p.seesNo("go with it")
	p.click("button", "Русский")
	p.sees("121 документ", "здесь ищут: knowledge", "4 из 4")
	require.False(t, evaluate[bool](p, "'hurt' in window"))
}

package pagetest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	downloads "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/target"
	"github.com/stretchr/testify/require"
)

// written writes files into a folder and gives their paths.
func written(t *testing.T, files map[string]string) (paths []string) {
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		paths = append(paths, path)
	}
	return paths
}

// drop drags files over what stands in the middle of the page, where an offer is seen then, and lets them go.
func (p *tab) drop(offer string, files map[string]string) {
	p.t.Helper()
	raw, err := json.Marshal(files)
	require.NoError(p.t, err)
	drag := func(kind string) bool { // whether the page takes it from the browser
		return evaluate[bool](p, `(files => {
			const dataTransfer = new DataTransfer();
			for (const [name, text] of Object.entries(files)) dataTransfer.items.add(new File([text], name));
			const event = new DragEvent(`+quoted(kind)+`, { bubbles: true, cancelable: true, dataTransfer });
			return !document.elementFromPoint(innerWidth * .6, innerHeight / 2).dispatchEvent(event);
		})(`+string(raw)+`)`)
	}
	require.True(p.t, drag("dragover"))
	p.until(offer, func() bool {
		return evaluate[bool](p, `[...document.querySelectorAll(".over, .over *")].some(e =>
			(e.innerText + getComputedStyle(e, "::after").content).includes(`+quoted(offer)+`))`)
	})
	require.True(p.t, drag("drop"))
}

// download clicks on a link and gives what the browser saves as the file of this name.
func (p *tab) download(link, name string) string {
	p.t.Helper()
	dir := p.t.TempDir()
	info := call(p, target.GetTargetInfo, target.GetTargetInfoParams{})
	call(p, downloads.SetDownloadBehavior, downloads.SetDownloadBehaviorParams{Behavior: "allow", DownloadPath: dir,
		BrowserContextID: info.TargetInfo.BrowserContextID})
	p.click("link", link)
	var text []byte
	p.until(name, func() (ok bool) {
		var err error
		text, err = os.ReadFile(filepath.Join(dir, name)) // it has another name until it is whole
		return err == nil
	})
	return string(text)
}

// choose puts files into the field for files, as its dialog does.
func (p *tab) choose(files map[string]string) {
	p.t.Helper()
	paths := written(p.t, files)
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
	_, s, p := visit(t)
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
	p.sees("4 of 4 done, 1 refused", "120 new")
	require.True(t, evaluate[bool](p, `Boolean(document.querySelector(".bad[title=unsupported]"))`))
	p.seesNo("unsupported")
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
	require.Contains(t, p.textOf(".found"), "14 crowns")
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

// Files that are dropped on a chat or on a collection are taken into it.
func TestDroppedFiles(t *testing.T) {
	_, s, p := visit(t)
	s.request(http.StatusCreated, "PUT", "/v1/collections/docs", "", "")
	p.open("#/chats/dropped")
	p.has("button", "Give a file to this chat")
	p.drop("Drop images to send them, other files to give them to this chat",
		map[string]string{"ferry.md": "A ferry ticket costs 14 crowns."})
	p.seesIn(".files", "ferry", "1 passage")
	p.seesNo("other files to give them to this chat")
	p.send("What does the ferry cost?")
	p.sees("A ferry ticket costs 14 crowns", "1 source")
	p.open("#/documents/docs")
	p.sees("No documents in it yet")
	p.drop("Drop to add to docs", map[string]string{"a.md": "Seals swim.", "b.md": "Terns fly."})
	p.sees("2 of 2 done", "a.md", "b.md")
}

// A file is given to a chat by the button, too. Until it can be found a message waits to be sent; one that cannot be
// read says why, and is put aside.
func TestAFileByTheButton(t *testing.T) {
	_, s, p := visit(t)
	p.open("#/chats/button")
	p.has("button", "Give a file to this chat")
	evaluate[bool](p, `(ask => {
		const held = new Promise((go) => { window.go = go; });
		window.fetch = async (...of) => (of[1]?.method === "PUT" && await held, ask(...of));
		return true;
	})(window.fetch)`)
	p.choose(map[string]string{"ferry.md": "A ferry ticket costs 14 crowns."})
	p.seesIn(".files", "ferry.md", "sending")
	require.Empty(t, p.barriers())
	p.write(field, "What does the ferry cost?")
	p.press("\r")
	require.True(t, evaluate[bool](p, `document.querySelector("[aria-label='Send (Enter)']").disabled`))
	evaluate[bool](p, "go(), true")
	p.seesIn(".files", "1 passage")
	p.press("\r")
	p.sees("A ferry ticket costs 14 crowns", "1 source")
	require.Equal(t, []string{"What does the ferry cost?"}, s.told("button")[:1])

	p.excuse("422")
	p.choose(map[string]string{"picture.bin": "\x00\x01\x02\x03"})
	p.seesIn(".files", "picture.bin", "The file is binary, not text.")
	require.Empty(t, p.barriers())
	p.click("button", "Close")
	p.seesNo("picture.bin")
	p.idle()
}

// Package pagetest walks through the page of webmemory in a real Chromium, as a person does: by what is
// seen, by the names that a screen reader reads, by mouse and keyboard.
package pagetest

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
)

// patience bounds each wait for the page and its services. Only a test that would never end reaches it.
const patience = 5 * time.Minute

// chromium is the one browser of all tests of this package, started when the first of them needs it.
var chromium struct {
	sync.Mutex
	ctx  context.Context // nil as long as there is none
	stop func()
}

func TestMain(m *testing.M) {
	if service := os.Getenv(asService); service != "" {
		os.Exit(serve(service))
	}
	for _, pair := range os.Environ() { // nothing of the caller's settings and keys
		name, _, _ := strings.Cut(pair, "=")
		if strings.HasPrefix(name, "MNEME_") || strings.HasSuffix(name, "_API_KEY") {
			os.Unsetenv(name)
		}
	}
	code := m.Run()
	if chromium.stop != nil {
		chromium.stop()
	}
	os.Exit(code)
}

// browserPath is CHROME_BIN, or the first browser on the PATH; empty without any.
func browserPath() string {
	for _, name := range []string{os.Getenv("CHROME_BIN"), "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// browser is the tests' Chromium; without an installed one the test is skipped.
func browser(t *testing.T) context.Context {
	t.Helper()
	if testing.Short() {
		t.Skip("walks through the page in a browser")
	}
	path := browserPath()
	if path == "" {
		t.Skip("no browser is installed (chromium, chromium-browser, google-chrome or CHROME_BIN), " +
			"so nobody looked at the page")
	}
	chromium.Lock()
	defer chromium.Unlock()
	if chromium.ctx != nil {
		return chromium.ctx
	}
	ctx, stopProcess := chromedp.NewExecAllocator(context.Background(),
		append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(path), chromedp.NoSandbox,
			chromedp.DisableGPU, chromedp.Flag("disable-component-update", true), chromedp.Flag("no-proxy-server", true),
			chromedp.Flag("lang", "en-US"))...)
	ctx, stop := chromedp.NewContext(ctx)
	require.NoError(t, chromedp.Do(ctx, chromedp.Navigate("about:blank")))
	chromium.ctx, chromium.stop = ctx, func() { stop(); stopProcess() }
	return ctx
}

// tab is what a person looks at. Whatever its page logs as an error, what its Content-Security-Policy
// keeps it from, and each request to another origin is a fault, and fails the test.
type tab struct {
	t      *testing.T
	ctx    context.Context
	origin string

	mu      sync.Mutex
	faults  []string // guarded by mu
	excused []string // guarded by mu; words of what is no fault
}

// newTab is a tab of a browser of its own, which shares nothing with others, on the page of origin.
func newTab(t *testing.T, origin string) *tab {
	return openTab(t, browser(t), origin, chromedp.WithNewBrowserContext())
}

// beside is another tab of the same browser.
func (p *tab) beside() *tab { return openTab(p.t, p.ctx, p.origin) }

func openTab(t *testing.T, parent context.Context, origin string, options ...chromedp.ContextOption) *tab {
	t.Helper()
	p := &tab{t: t, origin: origin}
	ctx, closeTab := chromedp.NewContext(parent, append(options, chromedp.WithListener(p.listen))...)
	require.NoError(t, chromedp.Do(ctx))
	p.ctx = ctx
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the page shows:\n%.2000s\nits faults are %.2000v", p.text(), p.known())
		}
		closeTab()
		if !t.Failed() {
			require.Empty(t, p.known())
		}
	})
	p.width(1280)
	call(p, network.Enable, network.EnableParams{})
	call(p, accessibility.Enable, cdp.Empty{})
	return p
}

// listen notes faults.
func (p *tab) listen(ev any) {
	fault := ""
	switch ev := ev.(type) {
	case *runtime.EventExceptionThrown:
		said, _ := json.Marshal(ev.ExceptionDetails)
		fault = "exception: " + string(said)
	case *runtime.EventConsoleAPICalled:
		if ev.Type == "error" || ev.Type == "warning" {
			said, _ := json.Marshal(ev.Args)
			fault = "console: " + string(said)
		}
	case *log.EventEntryAdded:
		if ev.Entry.Level == "error" {
			fault = fmt.Sprintf("log: %s (%s)", ev.Entry.Text, ev.Entry.URL)
		}
	case *network.EventRequestWillBeSent:
		url := ev.Request.URL
		own := slices.ContainsFunc([]string{p.origin + "/", "data:", "blob:" + p.origin, "about:blank"},
			func(prefix string) bool { return strings.HasPrefix(url, prefix) })
		if !own {
			fault = "a request to " + url
		}
	}
	if fault == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.ContainsFunc(p.excused, func(w string) bool { return strings.Contains(fault, w) }) {
		return
	}
	p.faults = append(p.faults, fault)
}

func (p *tab) known() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.faults)
}

// excuse has nothing that contains one of the words be a fault from here on: a test says so before it does what the page
// has to log, such as killing its server. Said behind it, what the browser tells late would be a fault.
func (p *tab) excuse(words ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.excused = append(p.excused, words...)
}

// forgive takes back the faults that contain words.
func (p *tab) forgive(words ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = slices.DeleteFunc(p.faults, func(fault string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(fault, w) })
	})
}

// do takes steps, none of which may take longer than a person's patience.
func (p *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	require.NoError(p.t, chromedp.Do(ctx, steps...))
}

// get is do of one step, with what it gives.
func get[T any](p *tab, step chromedp.Action[T]) (T, error) {
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	return chromedp.Run(ctx, step)
}

func call[P, R any](p *tab, command cdp.Command[P, R], params P) R {
	p.t.Helper()
	r, err := ask(p, command, params)
	require.NoError(p.t, err, command.Method)
	return r
}

// ask is call for what may fail, such as a question about what is being redrawn.
func ask[P, R any](p *tab, command cdp.Command[P, R], params P) (R, error) {
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	return chromedp.Call(ctx, command, params)
}

// evaluate gives what an expression of JavaScript, or the promise that it makes, comes to.
func evaluate[T any](p *tab, expression string) T {
	p.t.Helper()
	got, err := get(p, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	require.NoError(p.t, err, expression)
	return got
}

// quoted is text as a literal of JavaScript.
func quoted(text string) string {
	raw, _ := json.Marshal(text)
	return string(raw)
}

// until waits for a condition that a person could see come true.
func (p *tab) until(what string, met func() bool) {
	p.t.Helper()
	require.Eventually(p.t, met, patience, 20*time.Millisecond, "never came: %s", what)
}

// open goes to a view, such as "#/documents": within the page, once it is there.
func (p *tab) open(view string) {
	p.t.Helper()
	if strings.HasPrefix(evaluate[string](p, "location.href"), p.origin+"/#") {
		evaluate[string](p, "location.hash = "+quoted(view))
		return
	}
	p.do(chromedp.Navigate(p.origin + "/" + view))
}

// freezeClock stops the page's clock. Without it, a busy page shows a long text plain if reading it takes 250 ms.
func (p *tab) freezeClock() {
	p.t.Helper()
	evaluate[bool](p, "performance.now = () => 0, true")
}

func (p *tab) reload() {
	p.t.Helper()
	p.do(chromedp.Reload())
}

// text is all that can be read on the page.
func (p *tab) text() string { return p.textOf("body") }

// textOf is what can be read in the elements that a selector of CSS finds.
func (p *tab) textOf(selector string) string {
	got, _ := get(p, chromedp.Evaluate[string](
		fmt.Sprintf(`[...document.querySelectorAll(%s)].map(e => e.innerText).join("\n")`, quoted(selector))))
	return got
}

// sees waits until all texts can be read on the page.
func (p *tab) sees(texts ...string) {
	p.t.Helper()
	p.seesIn("body", texts...)
}

func (p *tab) seesIn(selector string, texts ...string) {
	p.t.Helper()
	for _, text := range texts {
		p.until(text, func() bool { return strings.Contains(p.textOf(selector), text) })
	}
}

// seesNo waits until none of the texts can be read on the page.
func (p *tab) seesNo(texts ...string) {
	p.t.Helper()
	for _, text := range texts {
		p.until("the end of "+text, func() bool { return !strings.Contains(p.text(), text) })
	}
}

// named are the elements of a role with an accessible name that is, or with a * at its end begins with, name.
func (p *tab) named(role, name string) []cdp.BackendNodeID {
	document, err := ask(p, dom.GetDocument, dom.GetDocumentParams{})
	if err != nil {
		return nil // between two pages
	}
	prefix, open := strings.CutSuffix(name, "*")
	query := accessibility.QueryAXTreeParams{NodeID: document.Root.NodeID, Role: role}
	if !open {
		query.AccessibleName = name
	}
	found, err := ask(p, accessibility.QueryAXTree, query)
	if err != nil {
		return nil
	}
	var ids []cdp.BackendNodeID
	for _, n := range found.Nodes {
		var said string
		if n.Name != nil {
			_ = json.Unmarshal([]byte(n.Name.Value), &said)
		}
		if !n.Ignored && strings.HasPrefix(said, prefix) {
			ids = append(ids, n.BackendDOMNodeID)
		}
	}
	return ids
}

// has waits until there is an element of this role and name.
func (p *tab) has(role, name string) {
	p.t.Helper()
	p.until(role+" "+name, func() bool { return len(p.named(role, name)) > 0 })
}

// hasNo waits until there is none.
func (p *tab) hasNo(role, name string) {
	p.t.Helper()
	p.until("the end of "+role+" "+name, func() bool { return len(p.named(role, name)) == 0 })
}

// on calls a function of JavaScript with an element of this role and name as this, once there is one, until it
// gives true: with the first of them or the last.
func (p *tab) on(role, name string, first bool, function string) {
	p.t.Helper()
	p.until(role+" "+name, func() bool {
		ids := p.named(role, name)
		if len(ids) == 0 {
			return false
		}
		id := ids[len(ids)-1]
		if first {
			id = ids[0]
		}
		node, err := ask(p, dom.ResolveNode, dom.ResolveNodeParams{BackendNodeID: id})
		if err != nil {
			return false // redrawn in between
		}
		done, err := get(p, chromedp.CallFunctionOn[bool](function, func(c *runtime.CallFunctionOnParams) {
			c.ObjectID = node.Object.ObjectID
			c.AwaitPromise = new(true)
		}))
		return err == nil && done
	})
}

// click clicks with the mouse on the last element of this role and name: on what is really in front there.
func (p *tab) click(role, name string) {
	p.t.Helper()
	p.clickOn(role, name, false)
}

// clickFirst is click on the first.
func (p *tab) clickFirst(role, name string) {
	p.t.Helper()
	p.clickOn(role, name, true)
}

// clickOn clicks once the element stands still, and again if the click met something else: what is drawn in between
// moves it. A click that would meet something else does nothing there.
func (p *tab) clickOn(role, name string, first bool) {
	p.t.Helper()
	for range 100 {
		p.on(role, name, first, `async function () {
			if (this.disabled) return false;
			this.scrollIntoView({ block: "center", behavior: "instant" });
			const before = this.getBoundingClientRect();
			await new Promise(requestAnimationFrame);
			await new Promise(requestAnimationFrame);
			const box = this.getBoundingClientRect();
			if (box.left !== before.left || box.top !== before.top) return false;
			const x = box.left + box.width / 2, y = box.top + box.height / 2;
			const own = (e) => e && (this.contains(e) ||
				[...this.labels ?? []].some((label) => label.contains(e)));
			if (!own(document.elementFromPoint(x, y))) return false;
			const click = window.testClick = { at: [x, y] };
			const guard = (e) => {
				click.met ??= this.isConnected && own(e.composedPath()[0]);
				if (click.met) return;
				e.preventDefault();
				e.stopImmediatePropagation();
			};
			const types = ["pointerdown", "mousedown", "pointerup", "mouseup", "click"];
			types.forEach((type) => addEventListener(type, guard, true));
			click.end = () => types.forEach((type) => removeEventListener(type, guard, true));
			return true;
		}`)
		at := evaluate[[]float64](p, "window.testClick.at")
		p.do(chromedp.MouseClickXY(at[0], at[1]))
		met := evaluate[bool](p, `(() => {
			window.testClick?.end();
			return window.testClick?.met !== false; // a click that leads to another page takes it along
		})()`)
		if met {
			return
		}
	}
	require.Fail(p.t, "no click met "+role+" "+name)
}

// write types text into the field of this name, in place of what is there.
func (p *tab) write(name, text string) {
	p.t.Helper()
	role := "textbox"
	p.until("a field "+name, func() bool {
		for _, role = range []string{"textbox", "searchbox", "combobox", "spinbutton"} {
			if len(p.named(role, name)) > 0 {
				return true
			}
		}
		return false
	})
	p.on(role, name, false, `function () {
		if (this.disabled) return false;
		this.focus(); this.select();
		return document.activeElement === this;
	}`)
	p.types(text)
}

// types enters text as a paste does, in one piece.
func (p *tab) types(text string) {
	p.t.Helper()
	call(p, input.InsertText, input.InsertTextParams{Text: text})
}

// press presses keys, one after the other; those of package kb have names. The letter comes with the key, so that
// a page that takes the key takes the letter as well.
func (p *tab) press(keys string, modifiers ...chromedp.Modifier) {
	p.t.Helper()
	for _, r := range keys {
		events := kb.Encode(r)
		down, up := *events[0], *events[len(events)-1]
		if len(events) == 3 {
			down.Text = events[1].Text
		}
		for _, m := range modifiers {
			down.Modifiers |= int64(m)
		}
		call(p, input.DispatchKeyEvent, down)
		call(p, input.DispatchKeyEvent, up)
	}
}

// focused is the accessible name, or else the text, of what has the focus.
func (p *tab) focused() string {
	return evaluate[string](p, `(e => (e?.getAttribute("aria-label") || e?.labels?.[0]?.innerText || e?.innerText ||
		e?.title || "").trim())(document.activeElement)`)
}

// scheme has the browser say that the person likes it "light" or "dark".
func (p *tab) scheme(name string) {
	p.t.Helper()
	call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: name}, {Name: "prefers-reduced-motion", Value: "reduce"}}})
}

// width is the window's, in pixels of CSS.
func (p *tab) width(pixels int64) {
	p.t.Helper()
	p.do(chromedp.EmulateViewport(pixels, 900))
}

// axeScript is axe-core.
//
//go:embed testdata/axe/axe.min.js
var axeScript string

// barriers are what axe-core finds serious or critical on the page, in light and in dark, and what is wider
// than a phone.
func (p *tab) barriers() (found []string) {
	p.t.Helper()
	evaluate[chromedp.Void](p, axeScript) // over the DevTools, which no policy of the page's holds up
	rules := `["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]`
	for _, scheme := range []string{"light", "dark"} {
		p.scheme(scheme)
		for _, barrier := range evaluate[[]string](p, `axe.run({ resultTypes: ["violations"], runOnly: `+rules+` }).then(r =>
			r.violations.filter(v => ["serious", "critical"].includes(v.impact))
				.map(v => v.id + ": " + v.help + v.nodes.map(n => "\n  " + n.html.slice(0, 200) + " " +
					n.any.map(a => a.message).join("; ")).join("")))`) {
			found = append(found, scheme+": "+barrier)
		}
		rules = `["color-contrast"]` // all that another scheme changes
	}
	p.width(390)
	defer p.width(1280)
	return append(found, evaluate[[]string](p, `document.documentElement.scrollWidth <= innerWidth ? [] :
		[...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > innerWidth + 1)
			.map(e => "too wide for a phone: " + e.outerHTML.slice(0, 120))`)...)
}

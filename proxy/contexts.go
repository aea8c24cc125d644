package proxy

import (
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/maypok86/otter/v2"

	"mneme/proxy/sanitize"
	"mneme/proxy/thinking"
)

// contextHeader tells, on answers and errors, how many tokens the context window of
// the model has, prompt and answer together. It is missing where that is unknown.
const contextHeader = "X-Ag-Context-Tokens"

// Windows of backends that are no vendor's, in tokens.
const (
	offlineWindow = 1_000_000 // it takes anything; this keeps its callers from cutting
	copilotWindow = 128_000   // its CLI shortens its sessions by itself
)

// windows are the context windows of a backend's models: what the vendor's errors
// said of them, else what the table says. Clients choose names, so their number is bounded.
type windows struct {
	find  func(model string) int
	cache *otter.Cache[string, int] // by the backend's name
}

// size is the window of a model in tokens; 0 if it is unknown.
func (w *windows) size(model string) int {
	n, ok := w.cache.GetIfPresent(model)
	if !ok {
		n, _ = w.cache.SetIfAbsent(strings.Clone(model), w.find(model))
	}
	return n
}

// learn keeps what a vendor said of a model. It counts more than the table: some
// regions, accounts and servers give a model less, some more.
func (w *windows) learn(model string, tokens int) { w.cache.Set(strings.Clone(model), tokens) }

// newWindows are those of the backend that b describes.
func (b BackendConfig) newWindows() *windows {
	local := isLocal(b.BaseURL)
	cache := otter.Must(&otter.Options[string, int]{MaximumSize: maxModels})
	return &windows{cache: cache, find: func(model string) int {
		switch b.Kind {
		case KindOffline:
			return offlineWindow
		case KindCopilot:
			return copilotWindow
		}
		return sanitize.ContextTokens(model, local)
	}}
}

// isLocal reports whether a URL leads to this machine or to one beside it.
func isLocal(base string) bool {
	u, err := url.Parse(base)
	if err != nil {
		return false
	}
	host := u.Hostname()
	if ip := net.ParseIP(host); ip != nil {
		return ip.IsLoopback() || ip.IsPrivate()
	}
	return !strings.Contains(host, ".") || host == "host.docker.internal"
}

// tellWindow puts the window of the request's model into the answer's header.
func (x routedRequest) tellWindow() {
	if tokens := x.backend.windows.size(x.model); tokens > 0 {
		x.client.Header().Set(contextHeader, strconv.Itoa(tokens))
	}
}

// learnWindow keeps what a refusal said of the model's window, and tells it.
func (x routedRequest) learnWindow(l thinking.Length) {
	if l.Excess == thinking.OverWindow && l.Limit >= minWindow {
		x.backend.windows.learn(x.model, l.Limit)
		x.tellWindow()
	}
}

// minWindow is the least that is believed of a model's window, in tokens.
const minWindow = 256

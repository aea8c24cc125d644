package webmemorytest

import (
	"net/http"
	"sync/atomic"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/webmemory"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/openaiapi"
	"mneme/webmemory/uistream"
)

// StartOpenAI starts a replica with the routes of OpenAI and of useChat, and returns its URL.
func (w *World) StartOpenAI(change ...func(*openaiapi.Config)) (url string) {
	w.T.Helper()
	var openai, ui atomic.Pointer[http.Handler]
	late := func(h *atomic.Pointer[http.Handler]) http.Handler {
		return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { (*h.Load()).ServeHTTP(rw, r) })
	}
	url = w.StartReplica(func(c *webmemory.Config) { c.OpenAI, c.UI = late(&openai), late(&ui) })
	memory, err := webapi.New(url)
	require.NoError(w.T, err)
	w.T.Cleanup(memory.Close)
	cfg := openaiapi.Config{Memory: memory, Agents: AgentNames, Log: zerolog.Nop(), Settings: openaiapi.Defaults()}
	for _, c := range change {
		c(&cfg)
	}
	served := openaiapi.New(cfg)
	w.T.Cleanup(served.Close)
	var handler http.Handler = served
	openai.Store(&handler)
	page := uistream.New(served)
	ui.Store(&page)
	return url
}

// Package proxy is the gateway: the one way by which the agents, and coding agents beside them, reach language
// models. Endpoints speak the messages dialect, chat completions, Responses and embeddings; behind them are backends
// by kind. A request passes one of the pipelines in pipeline.go; where endpoint and backend speak the same dialect
// its bytes pass too, apart from the model's name, and where they do not packages chatwire and responseswire
// translate. The routing is gin's; everything after it, from the body to the flushed events, is net/http.
//
// It owns what was learnt of backends, their circuits and routes, in memory, and the active backend in Redis; a
// request lives in the goroutine of its handler. It never stores what users wrote but as answered turns (package
// ledger), and never sends anything twice once the client has got a byte.
package proxy

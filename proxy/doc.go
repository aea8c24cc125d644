// Package proxy is the gateway: the one way by which the agents, and coding
// agents beside them, reach language models.
//
// Endpoints speak the messages dialect (POST /v1/messages), chat completions (POST
// /v1/chat/completions), Responses (POST /v1/responses) and embeddings. Behind them are backends by kind. A
// request passes one of the pipelines in pipeline.go; where endpoint and backend
// speak the same dialect its bytes pass too, apart from the model's name, and
// where they do not packages chatwire and responseswire translate.
//
// The routing is gin's, as in the other servers; everything after it, from the
// body to the flushed events, is net/http.
package proxy

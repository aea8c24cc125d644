// Package chatwire translates between chat completions (POST /v1/chat/completions) and the messages dialect of
// package wire: requests by MessagesRequest and ChatRequest, answers by ChatAnswer and MessagesAnswer. Each direction
// has one state machine, for streams and for JSON, so a stream that is put together always equals the JSON answer.
//
// It owns the state of one answer at a time, and no goroutine. It never sends or stores anything, and never reads
// thinking back from chat clients: it is shown to them as reasoning_content, without its signature.
package chatwire

// A streamed answer is one chat.completion.chunk per server-sent event, the last
// of them data: [DONE]. Choices[0].delta adds to the message: content,
// reasoning_content, tool_calls by index. The chunk with a finish_reason ends
// the answer; one without choices may follow with the usage.
//
// Each direction has one state machine, for streams and for JSON: an answer that
// came as JSON is taken as the events that a stream would have had, and one
// that must leave as JSON is put together from the events that the machine
// emits. So a stream that is put together always equals the JSON answer.
//
// Thinking is shown to chat clients as reasoning_content, without its signature,
// and is not read back from them. Reasoning of a chat backend is shown to
// messages clients as thinking with an empty signature.

// Package openaiapi serves OpenAI's chat completions and Responses over a webmemory, so that programs that speak them
// have agents with a lasting memory: POST /v1/chat/completions and /v1/responses, GET /v1/models and what is stored of
// responses, and the same below /c/{chat}/v1. It is a client of webmemory's public routes, so that a message is
// admitted, bounded and refused as the same message over them; Responses are translated as the gateway does.
//
// It owns nothing: of a chat webmemory has the history, and a transcript only tells which message is new. It never
// takes anything back by another way than After of a post, which sets it aside as a rewind does, and only together
// with IfLast.
package openaiapi

// # Which chat
//
// The path, a header, conversation or metadata.chat_id name it, or an id of Responses, see goOn; nothing else is looked
// at. Without a chat the
// messages that were sent are all that is known, and nothing is kept. Of a chat webmemory has the
// history: the transcript that a client sends along only tells which message is new, and what it
// follows.
//
// # How a transcript is matched
//
// Clients send what they hold: all of it or the newest part, with answers that they have trimmed,
// translated or left out. So the user's messages alone are compared, without their white space,
// and without reasoning that clients keep as text (see normal). match says of a transcript with t
// as the newest message of the user and P as the others, beside the stored ones S:
//
//	the newest in S is t, has no answer, and before it stands P    again: t takes its place
//	S ends with P, or is the end of P                              post: t follows all there is
//	t stands in S behind P at one place, and nothing else fits     again: what was said since then is taken back
//	S begins with P, and what follows there is not t               edit: t takes its place
//	anything else                                                  mismatch: nothing is changed
//
// A transcript with one message of the user is a post, unless it is the newest one, which failed, or unless the
// newest one came in a transcript of the same client: then it is the conversation's first, again or changed. A
// parent that the client names by its id decides before all of this, if it is known; so does the id of a message
// that is there. A client that sends ids and an empty parent says of one message of the user that it is the chat's
// first.
//
// Nothing is taken back by another way than After of a post, which sets it aside as a rewind
// does, and only together with IfLast: if another client has spoken in the chat since the
// history was read, it is read again. A message that was redacted may have been anything; it
// hinders no post and is no place to go back to.

// Package openaiapi serves OpenAI's chat completions, Responses and Conversations over a webmemory: POST
// /v1/chat/completions and /v1/responses, /v1/conversations, GET /v1/models, the stored responses, and most of these
// below /c/{chat}/v1. It is a client of webmemory, which admits, bounds and refuses each message.
//
// # Which chat
//
// The path, a header, conversation, metadata.chat_id or an id of Responses names the chat, see chatOf and goOn. Without
// a chat, the agents know only the messages of the request, and nothing is stored.
//
// # How a transcript is matched
//
// webmemory has the history. A transcript only shows where its last message goes. match compares exchanges: the user's
// message and the last text that answers it, both in normal form (see normal). The first row that applies decides:
//
//	the newest message again, which failed                      replace: it takes the place of the newest exchange
//	a retry of the client's own newest message                  join its run, or replace an answer that was cut
//	a known id of the client                                    the id decides, see byID
//	a single message                                            post: append it
//	the transcript ends with the newest exchange                post
//	it ends with the exchange before the newest one, which      replace
//	  came from the same client with a transcript
//	everything else                                             post, diverged: answered from the client's transcript
//
// A message replaces others only with After and IfLast of a post, which set them aside as a rewind does. If another
// client posts in between, the history is read again.
package openaiapi

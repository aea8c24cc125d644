// Package responseswire translates between OpenAI's Responses dialect (POST /v1/responses) and the messages dialect
// of package wire: requests by MessagesRequest and ResponsesRequest, answers by ResponsesAnswer and MessagesAnswer.
// It does what package chatwire does for chat completions, with the same state machine for streams and for JSON.
//
// It owns the state of one answer at a time, and no goroutine. It never sends or stores anything, and never shows a
// client another vendor's encrypted reasoning. docs/dialects.md says what becomes of each member of a request.
package responseswire

// The input and the output of a response are lists of items: a message, reasoning, the call of a function, its result.
// An item is one block of the messages dialect, so that their order is kept. A stream has, after response.created and
// response.in_progress, for each item
//
//	response.output_item.added
//	  response.content_part.added                   of a message
//	    response.output_text.delta …, response.output_text.done
//	  response.content_part.done
//	  response.reasoning_summary_part.added         of reasoning
//	    response.reasoning_summary_text.delta …, response.reasoning_summary_text.done
//	  response.reasoning_summary_part.done
//	  response.function_call_arguments.delta …, response.function_call_arguments.done
//	response.output_item.done
//
// and ends with response.completed, response.incomplete, or error and response.failed, and with data: [DONE]. The
// event: line of each is its type, and sequence_number counts them from 0.
//
// What becomes of thinking, by direction:
//
//   - ResponsesAnswer shows a block of thinking as a reasoning item with its text as the summary. Neither its signature
//     nor encrypted_content is in it: a client would send that to the vendor of another backend one day. Redacted
//     thinking is not shown.
//   - MessagesRequest leaves reasoning items out. Those of our own answers are put back by the ledger with the turn that
//     they belong to; those of another gateway's answers can be read by their vendor alone.
//   - MessagesAnswer shows the text of a reasoning item, its summary first of all, as thinking with an empty signature.
//     With Keep the signature seals the item itself, byte for byte, and a thinking block without a text at the end of the
//     turn seals what the items behind it say beyond their blocks. That is the gateway's: wire.Unsealed takes it out of what
//     a client gets.
//   - ResponsesRequest gives back what is sealed, and leaves other thinking out.
//
// Native is for a client of this dialect before a vendor of it: MessagesRequest with chatwire.Options.Native seals the
// client's items in the same way, so that they are recognised, and the client's own bytes are what is sent.
//
// docs/dialects.md says what becomes of the members of a request of this dialect. Of one of the messages dialect
//
//	system, messages          carried; a result that is_error begins with (error); a later system message is a developer's
//	tools, tool_choice        carried, strict too; tools that a vendor runs are refused
//	max_tokens                carried, 16 at least; temperature, top_p, stream as they are
//	output_config.format      text.format, strict where the schema leaves nothing open
//	output_config.effort      reasoning.effort; max is xhigh
//	thinking                  disabled: an effort of none, unless another one is named; else a summary is asked for,
//	                          and an effort of what its budget is worth
//	metadata, stop_sequences, top_k, context_management, service_tier, unknown ones   ignored
//	mcp_servers, container    refused

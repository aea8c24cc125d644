package bench

import "strconv"

// How streams end.
const (
	messagesEnd = "data: {\"type\":\"message_stop\"}\n\n"
	chatEnd     = "data: [DONE]\n\n"
)

// jsonEnd is the end of an answer's usage.
const jsonEnd = "}}"

// smallCalls are each the first of a conversation of their own.
func smallCalls(conversation string) calls {
	return calls{
		request: post("/v1/messages", conversation+"-"+callMark, "", encode(question())),
		ends:    jsonEnd, length: len(encode(newAnswer("end_turn", usual()...))),
	}
}

func streamCalls(conversation string) calls {
	q := question()
	q.Stream = true
	body, _ := usualStream()
	return calls{
		request: post("/v1/messages", conversation+"-"+callMark, "", encode(q)),
		ends:    messagesEnd, length: len(body),
	}
}

func translatedCalls(conversation string) calls {
	return calls{request: post("/v1/chat/completions", conversation+"-"+callMark, "", encode(chatQuestion())), ends: chatEnd}
}

// historyCalls carry a whole history. Every connection has its conversation, and
// asks it for another answer each time.
func historyCalls(conversation string) calls {
	c := smallCalls(conversation)
	c.request = post("/v1/messages", conversation+"-"+lineMark, "", encode(history()))
	return c
}

// historySoFar are the calls by which the history came about: all of it that an
// assistant said is an answer to one of them.
func historySoFar(conversation string) []calls { return soFar(history(), 0, "", conversation) }

// longCalls go on with a long conversation, each connection with its own.
func longCalls(turns int) func(conversation string) calls {
	return func(conversation string) calls {
		c := smallCalls(conversation)
		c.request = post("/v1/messages", conversation+"-"+lineMark, "", encode(long(turns)))
		return c
	}
}

// longSoFar are the calls by which it came about, those of the newest turns only:
// more than a gateway keeps of one.
func longSoFar(turns int) func(conversation string) []calls {
	return func(conversation string) []calls {
		return soFar(long(turns), max(0, turns-keptTurns), strconv.Itoa(turns)+"/", conversation)
	}
}

// keptTurns is more than how many turns a gateway keeps of a conversation.
const keptTurns = 220

// soFar are the calls by which a conversation came about, without its first turns.
// The vendor knows its messages by script and index.
func soFar(whole messagesBody, without int, script, conversation string) []calls {
	var out []calls
	for i, u := range whole.Messages {
		if u.Role != "assistant" || i < 2*without {
			continue
		}
		sofar := whole
		sofar.Messages = whole.Messages[:i]
		out = append(out, calls{
			request: post("/v1/messages", conversation+"-"+lineMark, scriptHeader+": "+script+strconv.Itoa(i)+"\r\n", encode(sofar)),
			ends:    jsonEnd, length: len(scripted(u)),
		})
	}
	return out
}

// Uses the client that ogen makes of /openapi.json.
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/ogen-go/ogen/ogenerrors"

	"generated/gen"
)

func check(ok bool, what string, got any) {
	if !ok {
		log.Fatalf("%s: %T %+v", what, got, got)
	}
}

func must[T any](got T, err error) T {
	check(err == nil, "an error", err)
	return got
}

// as is an answer of the type that is expected.
func as[T any](got any, err error) T {
	check(err == nil, "an error", err)
	is, ok := got.(T)
	check(ok, "answer", got)
	return is
}

// key is what a client shows; none if it is empty.
type key string

func (k key) Key(context.Context, gen.OperationName) (gen.Key, error) {
	if k == "" {
		return gen.Key{}, ogenerrors.ErrSkipClientSecurity
	}
	return gen.Key{Token: string(k)}, nil
}

func main() {
	ctx, url, chat := context.Background(), os.Getenv("MNEME_URL"), "7"
	refused := as[*gen.ProblemStatusCode](must(gen.NewClient(url, key(""))).GetChats(ctx, gen.GetChatsParams{}))
	check(refused.StatusCode == 401 && refused.Response.Error.Code == "unauthorized", "without a key", refused)

	c, in := must(gen.NewClient(url, key(os.Getenv("MNEME_KEY")))), gen.PostChatMessagesParams{Chat: chat}
	message := &gen.MessageRequest{Message: `One. SCRIPT [[{"say": "Answer one."}]]`,
		ChatID: gen.NewOptMessageRequestChatID(gen.NewIntMessageRequestChatID(7))}
	posted := as[*gen.ResultHeaders](c.PostChatMessages(ctx, message, in))
	check(posted.Response.Content == "Answer one.", "post", posted)

	message = &gen.MessageRequest{Message: `Two. SCRIPT [[{"say": "Answer two."}]]`, Stream: gen.NewOptBool(true)}
	live := as[*gen.PostChatMessagesOKRawTextEventStream](c.PostChatMessages(ctx, message, in))
	frames := 0
	for lines := bufio.NewScanner(live.Response.Body); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "event:") {
			frames++
		}
	}
	check(frames > 2, "stream", frames)
	_ = live.Response.Body.Close()

	// The client comes back by itself when a stream ends, until the service says that there is no more.
	run := live.Response.Header.Get("Mneme-Run-Id")
	events := as[*gen.GetChatRunEventsOK](c.GetChatRunEvents(ctx, gen.GetChatRunEventsParams{Chat: chat, Run: run}))
	text, seen := "", 0
	for e, err := range events.All(ctx) {
		check(err == nil, "event", err)
		seen++
		if delta, ok := e.Data.GetAssistantDeltaEvent(); ok {
			text += delta.Text
		}
		if e.Data.IsRunFinishedEvent() {
			break
		}
	}
	_ = events.Close()
	check(text == "Answer two." && seen == frames, "stream of a run", text)

	tools := []gen.ClientTool{{Name: "weather", Description: "The weather in a city.",
		Parameters: []byte(`{"type": "object"}`)}}
	message = &gen.MessageRequest{Tools: tools,
		Message: `Three. SCRIPT [[{"use": "weather", "input": {}}], [{"say": "Sunny."}]]`}
	waiting := as[*gen.PostChatMessagesAcceptedHeaders](c.PostChatMessages(ctx, message, in)).Response
	check(waiting.IsWaiting(), "post with a tool", waiting)
	var open []gen.ApprovalEntry
	for try := 0; len(open) == 0 && try < 100; try++ { // it is listed once its run has given the chat's turn back
		time.Sleep(50 * time.Millisecond)
		open = as[*gen.ApprovalList](c.GetApprovals(ctx, gen.GetApprovalsParams{})).Approvals
	}
	check(len(open) == 1 && open[0].RunID == waiting.Waiting.RunID, "approvals", open)
	check(open[0].Kind == gen.ApprovalEntryKindClientResult, "kind", open)
	answer := gen.WaitAnswer{ID: open[0].ID, Decision: gen.WaitAnswerDecisionApprove, Result: []byte(`"Sun."`)}
	done := as[*gen.ResultHeaders](c.PostChatRunResume(ctx, &gen.ResumeRequest{Answers: []gen.WaitAnswer{answer}},
		gen.PostChatRunResumeParams{Chat: chat, Run: open[0].RunID}))
	check(done.Response.Content == "Sunny.", "resume", done)

	history := as[*gen.HistoryPage](c.GetChatHistory(ctx, gen.GetChatHistoryParams{Chat: chat}))
	check(history.Messages[1].Content == "Answer one." && history.Messages[1].Timestamp > 1.7e9, "history", history)
	chats := as[*gen.ChatList](c.GetChats(ctx, gen.GetChatsParams{})).Chats
	check(len(chats) == 1 && chats[0].ChatID == chat, "chats", chats)
	fmt.Println("post, stream, approvals, resume, history, chats")
}

// Uses the client that oapi-codegen makes of /openapi.json.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"strings"
	"time"

	"generated/gen"
)

func check(ok bool, what string, got any) {
	if !ok {
		raw, _ := json.Marshal(got)
		log.Fatalf("%s: %+v %s", what, got, raw)
	}
}

func must[T any](got T, err error) T {
	check(err == nil, "an error", err)
	return got
}

func main() {
	ctx, url, chat := context.Background(), os.Getenv("MNEME_URL"), "7"
	noKey := must(gen.NewClientWithResponses(url))
	refused := must(noKey.GetChatsWithResponse(ctx, nil))
	check(refused.StatusCode() == 401 && refused.JSONDefault.Error.Code == "unauthorized", "without a key", refused)

	c := must(gen.NewClientWithResponses(url, gen.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+os.Getenv("MNEME_KEY"))
		return nil
	})))

	id := &gen.MessageRequest_ChatId{}
	check(id.FromMessageRequestChatId1(7) == nil, "a number as id", id)
	message := gen.MessageRequest{Message: `One. SCRIPT [[{"say": "Answer one."}]]`, ChatId: id}
	posted := must(c.PostChatMessagesWithResponse(ctx, chat, &gen.PostChatMessagesParams{}, message))
	check(posted.JSON200 != nil && posted.JSON200.Content == "Answer one.", "post", string(posted.Body))

	live := true
	message = gen.MessageRequest{Message: `Two. SCRIPT [[{"say": "Answer two."}]]`, Stream: &live}
	stream := must(c.PostChatMessages(ctx, chat, &gen.PostChatMessagesParams{}, message))
	check(read(stream) == "Answer two.", "stream", stream)
	again := must(c.GetChatRunEvents(ctx, chat, stream.Header.Get("Mneme-Run-Id"), &gen.GetChatRunEventsParams{}))
	check(read(again) == "Answer two.", "stream of a run", again)

	tools := []gen.ClientTool{{Name: "weather", Description: "The weather in a city.",
		Parameters: map[string]any{"type": "object"}}}
	message = gen.MessageRequest{Tools: &tools,
		Message: `Three. SCRIPT [[{"use": "weather", "input": {}}], [{"say": "Sunny."}]]`}
	waits := must(c.PostChatMessagesWithResponse(ctx, chat, &gen.PostChatMessagesParams{}, message))
	check(waits.JSON202 != nil, "post with a tool", string(waits.Body))
	waiting := must(waits.JSON202.AsWaiting())
	var open []gen.ApprovalEntry
	for try := 0; len(open) == 0 && try < 100; try++ { // it is listed once its run has given the chat's turn back
		time.Sleep(50 * time.Millisecond)
		open = must(c.GetApprovalsWithResponse(ctx, &gen.GetApprovalsParams{})).JSON200.Approvals
	}
	check(len(open) == 1 && open[0].RunId == waiting.RunId, "approvals", open)
	check(open[0].Kind == gen.ApprovalEntryKindClientResult, "kind", open)
	answer := gen.WaitAnswer{Id: open[0].Id, Decision: gen.Approve, Result: "Sun."}
	done := must(c.PostChatRunResumeWithResponse(ctx, chat, waiting.RunId, &gen.PostChatRunResumeParams{},
		gen.ResumeRequest{Answers: []gen.WaitAnswer{answer}}))
	check(done.JSON200 != nil && done.JSON200.Content == "Sunny.", "resume", string(done.Body))

	history := must(c.GetChatHistoryWithResponse(ctx, chat, &gen.GetChatHistoryParams{})).JSON200
	check(history.Messages[1].Content == "Answer one." && history.Messages[1].Timestamp > 1.7e9, "history", history)
	chats := must(c.GetChatsWithResponse(ctx, &gen.GetChatsParams{})).JSON200.Chats
	check(len(chats) == 1 && chats[0].ChatId == chat, "chats", chats)
	fmt.Println("post, stream, approvals, resume, history, chats")
}

// read gives the text of an answer's events.
func read(r *http.Response) (text string) {
	defer r.Body.Close()
	check(r.StatusCode == 200, "status", r.StatusCode)
	last := ""
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		data, ok := strings.CutPrefix(lines.Text(), "data:")
		if !ok {
			continue
		}
		var e gen.Event
		check(json.Unmarshal([]byte(data), &e) == nil, "event", data)
		last = must(e.Discriminator())
		if v, ok := must(e.ValueByDiscriminator()).(gen.AssistantDeltaEvent); ok {
			text += v.Text
		}
	}
	check(last == "run_finished", "last event", last)
	return text
}

package proxy_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/upstreamtest"
	"mneme/proxy/wire"
)

// itemErrors are what vendors of Responses say of the items of a request, some of them where there is nothing wrong,
// with the thoughts of three that the vendor gets after it; less than 0: the client gets the error after one call.
var itemErrors = map[string]struct {
	says     string
	thoughts int
	whole    string // the body, where it has a shape of its own
}{
	"no follower":  {"Item 'rs_1' of type 'reasoning' was provided without its required following item.", 0, ""},
	"no reasoning": {"Item 'msg_1' of type 'message' was provided without its required 'reasoning' item: 'rs_1'.", 3, ""},
	"not found": {"Item with id 'rs_1' not found. Items are not persisted when `store` is set to false. Try again with " +
		"`store` set to true, or remove this item from your input.", 0, ""},
	"unverified":    {"The encrypted content gAAA...DQ== could not be verified.", 0, ""},
	"xAI":           {whole: `{"code":"invalid-argument","error":"Could not decrypt the provided encrypted_content."}`},
	"vLLM":          {"Encrypted content is not supported.", 0, ""},
	"include":       {"Encrypted content is not supported with this model.", 3, ""},
	"twice":         {"Duplicate item found with id rs_1. Remove duplicate items from your input and try again.", 0, ""},
	"foreign id":    {"Invalid 'input[1].id': 'item_1'. Expected an ID that begins with 'rs'.", 0, ""},
	"no summary":    {"Missing required parameter: 'input[1].summary'.", 0, ""},
	"status":        {"Unknown parameter: 'input[1].status'.", 0, ""},
	"readable":      {"Invalid 'input[1].content': array too long. Expected an array with maximum length 0, but got an array with length 1 instead.", 0, ""},
	"compaction":    {"The encrypted content for item cmp_1 could not be verified. Reason: Encrypted content could not be decrypted or parsed.", -1, ""},
	"a tool's":      {"Encrypted function output content could not be decrypted.", -1, ""},
	"another cause": {"Invalid prompt.", -1, ""},
}

// Fault: a vendor's error about items is not known for what it is in the form in which it comes, so that the client
// gets it; or something is done about one that must reach the client.
func errorsAboutItems(t *testing.T) {
	var tried part
	forms := map[string]func(body string) upstreamtest.Fault{
		"a status": func(body string) upstreamtest.Fault { return upstreamtest.Canned(400, body) },
		"404":      func(body string) upstreamtest.Fault { return upstreamtest.Canned(404, body) },
		"an event": func(body string) upstreamtest.Fault {
			return upstreamtest.Fault{Status: 200, ContentType: "text/event-stream", Body: "data: " + `{"type":"error",` + body[1:] + "\n\n"}
		},
		"a failed response": func(body string) upstreamtest.Fault {
			return upstreamtest.Fault{Status: 200, ContentType: "text/event-stream",
				Body: `data: {"type":"response.created","response":{"id":"resp_1","status":"in_progress","output":[]}}` + "\n\n" +
					`data: {"type":"response.failed","response":{"id":"resp_1","status":"failed",` + body[1:] + "}\n\n"}
		},
	}
	for _, name := range slices.Sorted(maps.Keys(itemErrors)) {
		for form, fault := range forms {
			if !tried.next(3) {
				continue
			}
			t.Run(name+" as "+form, func(t *testing.T) {
				e := itemErrors[name]
				body := e.whole
				if body == "" {
					body = fmt.Sprintf(`{"error":{"message":%s,"type":"invalid_request_error","param":null,"code":null}}`, wire.Quote(e.says))
				}
				w := newWorld(t, gpt)
				v := w.vendors["gpt"]
				for n := range 3 {
					v.Queue(upstreamtest.Reply(upstreamtest.Think(fmt.Sprintf("thought %d", n)),
						upstreamtest.Say(fmt.Sprintf("Said %d.", n))))
				}
				v.Queue(upstreamtest.Reply(upstreamtest.Say("Done.")), upstreamtest.Reply(upstreamtest.Say("Welcome.")))
				c := w.gateway().responses("gpt-5.1")
				c.within("c1")
				c.any, c.keeps, c.stream = true, true, form == "an event" || form == "a failed response"
				for n := range 3 {
					c.say(fmt.Sprintf("question %d", n))
				}
				v.Fail(fault(body))
				w.checked = true
				if e.thoughts < 0 {
					c.add(map[string]string{"role": "user", "content": "Go"})
					got := c.ask()
					require.Equal(t, e.says, gjson.Get(got.body, "error.message").Str, got.body)
					require.Len(t, v.Requests(), 4, "one call")
					return
				}
				require.Equal(t, "Done.", c.say("Go"))
				require.Len(t, v.Requests(), 5, "one call more")
				require.Len(t, encrypted(v.Last().Body), e.thoughts, string(v.Last().Body))
				require.Equal(t, name != "include", gjson.GetBytes(v.Last().Body, "include").Exists())
				require.Equal(t, "Welcome.", c.say("Thanks"))
				require.Len(t, v.Requests(), 6, "it is remembered")
			})
		}
	}
}

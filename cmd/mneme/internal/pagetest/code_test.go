package pagetest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/stretchr/testify/require"
)

// answered has a chat with a text as its last answer.
func (s service) answered(chat, text string) {
	s.t.Helper()
	raw, err := json.Marshal(map[string]any{"message": map[string]string{"role": "assistant", "content": text}})
	require.NoError(s.t, err)
	s.request(http.StatusCreated, "POST", "/v1/chats/"+chat+"/import", "application/x-ndjson",
		`{"message":{"role":"user","content":"Write it"}}`+"\n"+string(raw))
}

// Each block of code is copied by a button of its own, and coloured where its language is known; what it says is text.
func TestCode(t *testing.T) {
	_, s, p := visit(t)
	code := "func main() { // begins\n\tfmt.Println(\"<b>\", 42)\n}"
	diff := "--- a\n+++ b\n@@ -1 +1 @@\n-don't\n+do"
	s.answered("code", "```go\n"+code+"\n```\n\n```diff\n"+diff+"\n```\n\n```unknown\n"+hostile("code")+
		"\n```\n\n```ts title=\"x.ts\"\nconst a: number = `b`\n```\n\n    indented")
	p.open("#/chats/code")
	p.seesIn(".code-keyword", "func", "const")
	p.seesIn(".code-comment", "// begins")
	p.seesIn(".code-string", `"<b>"`, "`b`")
	p.seesIn(".code-diff-add", "+do")
	p.seesIn(".code-diff-remove", "-don't")
	p.seesIn(".code-top", "go", "diff", "unknown", "ts")
	require.Equal(t, []string{code, diff, hostile("code"), "const a: number = `b`", "indented"},
		evaluate[[]string](p, `[...document.querySelectorAll("pre.code")].map((e) => e.textContent)`))
	require.False(t, evaluate[bool](p, "'hurt' in window"))
	require.Empty(t, p.barriers())

	p.clickFirst("button", "Copy this code")
	p.has("button", "Copied")
	p.write(field, "")
	call(p, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: "keyDown", Key: "v", Code: "KeyV", Modifiers: 2,
		Commands: []string{"Paste"}})
	p.until("the code", func() bool {
		return evaluate[string](p, `document.querySelector(".composer textarea").value`) == code
	})

	long := strings.Repeat("return 1\n", 20_000/9+1)
	p.freezeClock()
	s.answered("long", "```py\n"+long+"```\n\n```py\nreturn 2\n```")
	p.open("#/chats/long")
	p.seesIn(".code-keyword", "return")
	require.Equal(t, 1, evaluate[int](p, `document.querySelectorAll(".code-keyword").length`), "a long block is plain")
}

// languages are those that the page colours.
var languages = strings.Fields("c cpp diff dockerfile go java js json kotlin php py rust sh sql toml ts yaml")

// Code that is made to take long is shown, in whatever language it says that it is.
func TestCodeThatTakesLong(t *testing.T) {
	_, s, p := visit(t)
	var blocks strings.Builder
	for i, piece := range []string{"a", "(", "`${", "'\\", "/*", "<a b=", "${", "- ", "1_", "a: |\n", "#\"", "a<"} {
		language := languages[i%len(languages)]
		fmt.Fprintf(&blocks, "```%s\n%s\n```\n", language, strings.Repeat(piece, 7000/len(piece)))
	}
	s.answered("hostile", blocks.String()+"\nand that is all")
	p.open("#/chats/hostile")
	p.seesIn(".message", "and that is all")
}

// Code of 18 kB has colours in each language.
func TestLongCodeHasColours(t *testing.T) {
	_, s, p := visit(t)
	for _, language := range languages {
		s.answered("in-"+language, "```"+language+"\n"+strings.Repeat("word \"text\" 12 # // x\n", 800)+"```\nand that is all")
	}
	p.open("#/chats")
	p.freezeClock()
	for _, language := range languages {
		p.open("#/chats/in-" + language)
		p.seesIn(".message", "and that is all")
		p.until(language+" in colours", func() bool {
			return evaluate[bool](p, `document.querySelectorAll("[class^=code-] > span, code > span").length > 500`)
		})
	}
}

package thinking

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/outsidedata"
)

// The recorded errors of real vendors and gateways: how many of those that a strip
// cures are found, and how many of those found a strip cures.
func TestClassifyRecordedErrorsOutsideData(t *testing.T) {
	f, err := os.Open(outsidedata.Path(t, "errors", "dev.jsonl"))
	require.NoError(t, err)
	defer f.Close()
	var found, right, wanted, all int
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct {
			Status int    `json:"status"`
			Label  string `json:"label"`
			Family string `json:"family"`
			Body   string `json:"body"`
		}
		require.NoError(t, json.Unmarshal(lines.Bytes(), &e))
		class := Classify(e.Status, []byte(e.Body))
		all++
		helps := e.Label == "strip_helps"
		if helps {
			wanted++
		}
		if class == ClassStrip {
			found++
			if helps {
				right++
			}
		}
		if helps != (class == ClassStrip) {
			t.Logf("%s/%s is taken for %s: %s", e.Label, e.Family, class, e.Body)
		}
		if e.Family == "pass_back" || e.Family == "must_start" || e.Family == "gemini_missing" {
			require.Equal(t, ClassRestore, class, e.Body)
		}
	}
	require.NoError(t, lines.Err())
	require.NotZero(t, found)
	precision, recall := float64(right)/float64(found), float64(right)/float64(wanted)
	t.Logf("%d errors, %d of them for a strip: precision %.3f (%d of %d), recall %.3f (%d of %d)",
		all, wanted, precision, right, found, recall, right, wanted)
	require.GreaterOrEqual(t, precision, 0.95)
	require.GreaterOrEqual(t, recall, 0.95)
}

// The recorded errors of vendors that speak Responses, and of Gemini: what is restored, what is stripped, and what is
// neither, its near twins among them.
func TestClassifyResponsesAndGeminiOutsideData(t *testing.T) {
	f, err := os.Open(outsidedata.Path(t, "errors", "responses-gemini.jsonl"))
	require.NoError(t, err)
	defer f.Close()
	var acted, right, wanted int
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct{ Body, Class string }
		require.NoError(t, json.Unmarshal(lines.Bytes(), &e))
		class := classOf([]byte(e.Body)).String() // some came inside a stream, which has the status 200
		if e.Class != "other" {
			wanted++
		}
		if class != "other" {
			acted++
			if class == e.Class {
				right++
			}
		}
		if class != e.Class {
			t.Logf("%s is taken for %s: %s", e.Class, class, e.Body)
		}
	}
	require.NoError(t, lines.Err())
	require.NotZero(t, acted)
	precision, recall := float64(right)/float64(acted), float64(right)/float64(wanted)
	t.Logf("precision %.3f (%d of %d), recall %.3f (%d of %d)", precision, right, acted, recall, right, wanted)
	require.GreaterOrEqual(t, precision, 0.98)
	require.GreaterOrEqual(t, recall, 0.95)
}

const signature = "messages.3.content.1: Invalid `signature` in `thinking` block"

// Shapes that gateways give to the body of an error, around any message.
var shapes = map[string]func(message string) string{
	"plain":         func(m string) string { return m },
	"with a status": func(m string) string { return "API Error: 400 " + m + " (request id: 2026)" },
	"messages dialect": func(m string) string {
		return `{"type":"error","error":{"type":"x","message":` + quote(m) + `}}`
	},
	"chat dialect":      func(m string) string { return `{"error":{"message":` + quote(m) + `,"code":null}}` },
	"top-level message": func(m string) string { return `{"message":` + quote(m) + `,"status":400}` },
	"array":             func(m string) string { return `[ {"error":{"code":400,"message":` + quote(m) + `}} ]` },
	"error as a string": func(m string) string { return `{"error":` + quote(m) + `}` },
	"detail":            func(m string) string { return `{"detail":[{"loc":["body"],"msg":` + quote(m) + `}]}` },
	"JSON in a string": func(m string) string {
		return `{"error":{"message":` + quote(`{"error":{"message":`+quote(m)+`}}`) + `}}`
	},
	"twice in a string": func(m string) string { return quote(quote(`{"message":` + quote(m) + `}`)) },
	"prose and JSON": func(m string) string {
		return `{"message":` + quote("Upstream said: 400 - "+`{"message":`+quote(m)+`}`) + `}`
	},
	"metadata.raw": func(m string) string {
		return `{"error":{"message":"no","metadata":{"raw":` + quote(`{"x":`+quote(m)+`}`) + `}}}`
	},
	"upstream_error": func(m string) string {
		return `{"error":{"upstream_error":{"error":{"message":` + quote(m) +
			`}}}}`
	},
	"no member that speaks": func(m string) string { return `{"title":` + quote(m) + `}` },
	"python": func(m string) string {
		return `Error code: 400 - {'error': {'message': "` + m + `", 'type': None}}`
	},
	"broken JSON": func(m string) string { return `{"error":{"message":"{"error":{"message":"` + m + `"}}"}}` },
	"cut off": func(m string) string {
		return `{"error":{"code":400,"message":` + quote(`{"message":`+quote(m)+`},"request_`)
	},
	"wrapped by a terminal": func(m string) string {
		return "{\"message\":\"" + strings.ReplaceAll(m, "th", "t\n    h") + "\"}"
	},
	"upper case": func(m string) string { return strings.ToUpper(m) },
	"C# escapes": func(m string) string {
		return `{"message":` + quote("x "+strings.ReplaceAll(quote(m), "`", `\u0060`)) + `}`
	},
	"many lines": func(m string) string { return strings.Repeat("at frame\n", 900) + m },
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

var said = map[string]Class{
	signature: ClassStrip,
	"messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation. " +
		"Remove the block.": ClassStrip,
	"The model returned the following errors: messages.3.content.0.thinking.signature: Field " +
		"required": ClassStrip,
	"messages.3.content.0.thinking.thinking: Field " +
		"required": ClassStrip,
	"***.***.***.signature: Field " +
		"required": ClassStrip,
	"***.***.content.4: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be " +
		"modified.": ClassStrip,
	"messages.3.content.0: Invalid `data` in `redacted_thinking` " +
		"block": ClassStrip,
	"messages.3.content.0.redacted_thinking.data: Field " +
		"required": ClassStrip,
	"Corrupted thought " +
		"signature.": ClassStrip,
	"Invalid thought " +
		"signature.": ClassStrip,
	"Unable to submit request because Thought signature is not valid.. Learn " +
		"more": ClassStrip,
	"messages.5: The final block in an assistant message cannot be " +
		"`thinking`.": ClassStrip,
	"messages.5.content.2.tool_use.signature: Extra inputs are not " +
		"permitted": ClassStrip,
	"messages.5.content.2.thinking.cache_control: Extra inputs are not " +
		"permitted": ClassStrip,
	"messages.5.content.0: If an assistant message contains any thinking blocks, the first block must be `thinking`. " +
		"Found `text`.": ClassStrip,
	"'messages.4' : for 'role:assistant' the following must be satisfied[('messages.4' : property 'reasoning' is " +
		"unsupported)]": ClassStrip,
	"body.messages.2.assistant.reasoning_content: Extra inputs are not " +
		"permitted": ClassStrip,
	"Unknown parameter: " +
		"'messages[1].reasoning_content'.": ClassStrip,
	"Please remove the reasoning_content from your message to reduce network " +
		"traffic.": ClassStrip,
	"messages.1.content.0: Input tag 'thinking' found using 'type' does not match any of the expected tags: 'text', " +
		"'image'": ClassStrip,
	"unknown variant `redacted_thinking`, expected one of `text`, `thinking`, " +
		"`tool_use`": ClassStrip,
	"Invalid value: 'thinking'. Supported values are: 'text' and " +
		"'refusal'.": ClassStrip,
	"Invalid thinking block: signature verification " +
		"failed": ClassStrip,
	"messages.3.content.1: Invalid thinking " +
		"block": ClassStrip,
	"messages.3.content.1: thinking block mismatch: the content was " +
		"changed": ClassStrip,
	"messages[3].content[1]: Verification of the `thinking` block " +
		"failed": ClassStrip,
	"messages.3.content.1.thinking: could not be verified (thinking)": ClassStrip,
	"messages.3.content.1: The signature of this block was not made by a model that may read its " +
		"thinking": ClassStrip,
	"***.***.content.4: unrecognized `redacted_thinking` block":        ClassStrip,
	"messages.3.content.1: `thinking` block signature does not verify": ClassStrip,
	"messages.3.content.1.tool_use.input: invalid type, and the thinking of the signature is no " +
		"dictionary": ClassOther,
	"messages.3.content.1: Input tag 'think' found using 'type' does not match any of the expected tags: 'text', " +
		"'thinking'": ClassOther,
	"system: the text about thinking has an invalid signature":       ClassStrip,
	"Invalid thinking block":                                         ClassStrip,
	"Thinking verification failed":                                   ClassStrip,
	"Unrecognized thinking block":                                    ClassStrip,
	"thinking signature mismatch":                                    ClassStrip,
	"The signature of the thinking block is not valid":               ClassStrip,
	"thinking blocks could not be verified":                          ClassStrip,
	"redacted_thinking: mismatch":                                    ClassStrip,
	"Your session is forging thinking signature judged by Anthropic": ClassStrip,
	"Invalid schema for function 'sequentialthinking': bad type":     ClassOther,
	"tools.3.name: invalid name mcp__sequential-thinking__think":     ClassOther,
	"Invalid parameter: thinking":                                    ClassOther,
	"thinking.type: invalid value":                                   ClassOther,
	"thinking: budget_tokens is invalid":                             ClassOther,
	"invalid tool_choice while thinking":                             ClassOther,
	"invalid_request_error: thinking is unavailable":                 ClassOther,
	"temperature is invalid when thinking is enabled":                ClassOther,
	"Item 'rs_1' of type 'reasoning' was provided without its required following " +
		"item.": ClassStrip,
	"Item with id 'rs_1' not " +
		"found.": ClassStrip,
	"Item with id 'msg_1' not " +
		"found.": ClassOther,
	"The encrypted content gAAA...DQ== could not be " +
		"verified.": ClassStrip,
	"Could not decrypt the provided " +
		"encrypted_content": ClassStrip,
	"reasoning `encrypted_content` was not issued to this " +
		"caller": ClassStrip,
	"Encrypted content is not " +
		"supported.": ClassStrip,
	"Encrypted content is not supported with this " +
		"model.": ClassOther,
	"Encrypted function output content could not be decrypted or " +
		"decoded.": ClassOther,
	"The encrypted content for item cmp_1 could not be verified. Reason: invalid_encrypted_content": ClassOther,
	"Could not decode the compaction blob: the encrypted content could not be decrypted":            ClassOther,
	"Unknown parameter: 'input[273].status'.":                                                       ClassStrip,
	"Missing required parameter: 'input[3].summary'.":                                               ClassStrip,
	"Missing required parameter: 'input[3].content'.":                                               ClassOther,
	"Duplicate item found with id rs_1. Remove duplicate " +
		"items": ClassStrip,
	"Invalid 'input[66].id': 'item_df7e'. Expected an ID that begins with " +
		"'rs'.": ClassStrip,
	"Invalid 'input[2].content': array too long. Expected an array with maximum length 0, but got an array with " +
		"length 1 instead.": ClassStrip,
	"No tool call found for function call output with call_id " +
		"call_1.": ClassOther,
	"Item 'fc_1' of type 'function_call' was provided without its required 'reasoning' item: " +
		"'rs_1'.": ClassRestore,
	"The `reasoning_content` in the thinking mode must be passed back to the " +
		"API.": ClassRestore,
	"thinking is enabled but reasoning_content is missing in assistant tool call message at index " +
		"12": ClassRestore,
	"Function call is missing a thought_signature in functionCall " +
		"parts.": ClassRestore,
	"messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found " +
		"`tool_use`.": ClassRestore,
	"a final `assistant` message must start with a thinking " +
		"block": ClassRestore,
	"thinking.enabled.budget_tokens: Input should be greater than or equal to " +
		"1024": ClassOther,
	"thinking: Input tag 'adaptive' found using 'type' does not match any of the expected tags: 'disabled', " +
		"'enabled'": ClassOther,
	"thinking.block_binding: Extra inputs are not " +
		"permitted": ClassOther,
	"`clear_thinking_20251015` strategy requires `thinking` to be enabled or " +
		"adaptive": ClassOther,
	"The request signature we calculated does not match the signature you " +
		"provided.": ClassOther,
	"invalid thinking: only type=enabled is allowed for this " +
		"model": ClassOther,
	"unknown variant `auto`, expected one of `adaptive`, `enabled`, " +
		"`disabled`": ClassOther,
	"Unrecognized request argument supplied: " +
		"reasoning": ClassOther,
	"property 'reasoning_effort' is " +
		"unsupported": ClassOther,
	"I was thinking that your signature is invalid, and the block cannot be " +
		"modified": ClassStrip,
	"messages.2: `tool_use` ids were found without `tool_result` blocks immediately after: " +
		"toolu_1.": ClassOther,
	"The thinking signature of this invalid block was discussed in the latest assistant " +
		"message": ClassStrip,
	"":  ClassOther,
	"{": ClassOther,
}

func TestClassifyShapes(t *testing.T) {
	for message, class := range said {
		for shape, of := range shapes {
			require.Equal(t, class, Classify(400, []byte(of(message))), "%s: %s", shape, of(message))
		}
	}
}

func TestClassifyFastAPI(t *testing.T) {
	require.Equal(t, ClassStrip, Classify(422, []byte(
		`{"detail":[{"type":"missing","loc":["body","messages",1,"content",0,"thinking","signature"],"msg":"Field `+
			`required","input":{}}]}`)))
	require.Equal(t, ClassStrip, Classify(422, []byte(
		`{"detail":[{"type":"extra_forbidden","loc":["body","messages",5,"assistant","reasoning_content"],"msg":"Extra `+
			`inputs are not permitted"}]}`)))
	require.Equal(t, ClassOther, Classify(422, []byte(
		`{"detail":[{"type":"extra_forbidden","loc":["body","reasoning"],"msg":"Extra inputs are not permitted"}]}`)))
}

// A user that asks about such an error must not cause a strip.
func TestClassifyIgnoresWhatTheUserWrote(t *testing.T) {
	for name, body := range map[string]string{
		"FastAPI":   `{"detail":[{"msg":"Input should be a list","input":` + quote("why "+signature) + `}]}`,
		"an object": `{"detail":[{"msg":"wrong","input":{"message":` + quote(signature) + `}}]}`,
		"python":    `Error 422: {'detail': [{'msg': 'wrong', 'input': 'why ` + signature + `'}]}`,
		"pydantic":  `1 validation error [type=list_type, input_value='` + signature + `', input_type=str]`,
		"a string": `{"error":{"message":` + quote(`422: {"detail":[{"msg":"wrong","input":`+quote(signature)+`}]}`) +
			`}}`,
		"cut off":      `{"detail":[{"msg":"wrong","input":` + strings.TrimSuffix(quote(signature), `"`),
		"unclosed":     `x {"input": {"text": "` + signature,
		"no error key": `{"prompt":` + quote(signature) + `,"title":"no"}`,
		"too long":     `{"detail":[{"msg":"wrong","input":"` + strings.Repeat("a", maxErrorBody) + signature + `"}]}`,
	} {
		require.Equal(t, ClassOther, Classify(400, []byte(body)), "%s: %s", name, body)
	}
	require.Equal(t, ClassStrip, Classify(400, []byte(`{'input': 'a\'b', 'msg': "`+signature+`"}`)))
}

func TestClassifyByStatus(t *testing.T) {
	for _, status := range []int{400, 403, 422, 429, 500, 502} {
		require.Equal(t, ClassStrip, Classify(status, []byte(signature)))
	}
	for _, status := range []int{0, 200, 302} {
		require.Equal(t, ClassOther, Classify(status, []byte(signature)))
	}
	failure := `{"type":"error","error":{"type":"invalid_request_error","message":` + quote(signature) + `}}`
	require.Equal(t, ClassStrip, Classify(400, []byte(failure)))
	require.True(t, IsError([]byte(failure)))
	require.True(t, IsError([]byte(`{"error":{"message":`+quote(signature)+`}}`)))
	require.False(t, IsError([]byte(`{"type":"content_block_delta","delta":{"text":`+quote(signature)+`}}`)))
	require.False(t, IsError([]byte(`{"choices":[{"message":{"content":"the \"error\" was: prompt is too long"}}]}`)))
	require.False(t, IsError([]byte(`{"error":null,"choices":[{"delta":{"content":`+quote(signature)+`}}]}`)))
	require.False(t, IsError([]byte("[DONE]")))
}

// The kinds of refusals of thinking, by the families of the recorded ones; whatever is not about it has none.
func TestKindOfRecordedErrorsOutsideData(t *testing.T) {
	of := map[string]Kind{
		"sig": KindSignature, "gemini_sig": KindSignature, "redacted": KindSignature, "oai_encrypted": KindSignature,
		"sig_missing": KindSchema, "think_missing": KindSchema, "oai_reasoning": KindSchema,
		"modified": KindModified, "sig_prefix": KindModified, "must_start": KindPlace,
		"pass_back": KindMissing, "gemini_missing": KindMissing,
	}
	found := map[Kind]int{}
	for _, e := range recordedErrors(t, "dev.jsonl") {
		want, about := of[e.Family]
		kind := KindOf([]byte(e.Body))
		found[kind]++
		require.Equal(t, kind == KindNone, Classify(e.Status, []byte(e.Body)) == ClassOther, e.Body)
		if about && kind != KindNone && !strings.Contains(e.Body, "Field required") {
			require.Equal(t, want, kind, e.Body)
		}
	}
	for _, k := range []Kind{KindSignature, KindModified, KindPlace, KindDisabled, KindMissing, KindSchema} {
		require.NotZero(t, found[k], k)
	}
	t.Log(found)
}

func TestSaysBound(t *testing.T) {
	require.True(t,
		SaysBound([]byte(`{"error":{"message":"Invalid `+"`signature`"+
			`. The block is bound to a different conversation."}}`)))
	require.False(t, SaysBound([]byte(signature)))
}

func FuzzClassify(f *testing.F) {
	for message := range said {
		f.Add([]byte(message))
	}
	for _, of := range shapes {
		f.Add([]byte(of(signature)))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		class := Classify(400, body)
		require.Equal(t, class, Classify(429, body))
		require.Equal(t, ClassOther, Classify(200, body))
		IsError(body)
	})
}

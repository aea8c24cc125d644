package thinking

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/outsidedata"
	"mneme/proxy/wire"
)

// recorded is one line of the recorded errors.
type recorded struct {
	Status    int    `json:"status"`
	Body      string `json:"body"`
	Vendor    string `json:"vendor"`
	Limit     int    `json:"limit"`
	Sent      int    `json:"sent"`
	Input     int    `json:"sent_input"`
	Output    int    `json:"sent_output"`
	Family    string `json:"family"`
	LookAlike bool   `json:"look_alike"`
	Allowance int    `json:"tpm_limit"`
	Requested int    `json:"tpm_requested"`

	Parameter  string   `json:"parameter"` // that is refused
	Parameters []string `json:"parameters"`
	Source     string   `json:"source"`
}

// read is what ReadLength says. What came inside a stream has the status that it names.
func (r recorded) read() Length {
	if r.Status == 200 && IsError([]byte(r.Body)) {
		r.Status = wire.ReadFailure(0, []byte(r.Body)).Status
	}
	return ReadLength(r.Status, []byte(r.Body))
}

func recordedErrors(t *testing.T, name string) []recorded {
	t.Helper()
	f, err := os.Open(outsidedata.Path(t, "errors", name))
	require.NoError(t, err)
	defer f.Close()
	var out []recorded
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r recorded
		require.NoError(t, json.Unmarshal(lines.Bytes(), &r))
		out = append(out, r)
	}
	require.NoError(t, lines.Err())
	require.NotEmpty(t, out)
	return out
}

// Every recorded error of a request that is too long is seen for one, with its
// numbers, and those about an account's allowance are told apart.
func TestReadLengthOfRecordedErrorsOutsideData(t *testing.T) {
	for _, r := range recordedErrors(t, "context-length.jsonl") {
		want := Length{Excess: OverWindow, Limit: r.Limit, Total: r.Sent, Input: r.Input, Output: r.Output}
		if r.LookAlike {
			want = Length{Excess: OverAllowance, Limit: r.Allowance, Total: r.Requested}
		}
		require.Equal(t, want, r.read(), "%s: %s", r.Vendor, r.Body)
	}
}

// No other recorded error is taken for one.
func TestReadLengthOfOtherRecordedErrorsOutsideData(t *testing.T) {
	for _, name := range []string{"dev.jsonl", "parameters.jsonl", "responses-gemini.jsonl"} {
		for _, r := range recordedErrors(t, name) {
			if strings.HasSuffix(r.Family, "length") {
				require.Equal(t, OverWindow, r.read().Excess, "%s: %s", name, r.Body)
				continue
			}
			require.Equal(t, Length{}, r.read(), "%s: %s", name, r.Body)
		}
	}
}

// What other vendors and servers are known to say.
func TestReadLengthInManyWords(t *testing.T) {
	over := func(limit, sent, input, output int) Length {
		return Length{Excess: OverWindow, Limit: limit, Total: sent, Input: input, Output: output}
	}
	for said, want := range map[string]Length{
		"This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4000 in the messages, " +
			"100 in the functions, and 900 in the completion). Please reduce the length of the messages, functions, or " +
			"completion.": over(4096, 5000, 4100, 900),
		"This model's maximum context length is 4097 tokens, however you requested 4927 tokens (3927 in your prompt; 1000 " +
			"for the completion). Please reduce your prompt; or completion length.": over(4097, 4927, 3927, 1000),
		"Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300123 tokens. Please " +
			"reduce the length of the messages.": over(272000, 300123, 300123, 0),
		"Input is too long for requested model.": over(0, 0, 0, 0),
		"prompt is too long":                     over(0, 0, 0, 0),
		"The model returned the following errors: input length and `max_tokens` exceed context limit: 190,001 + 21,333 > " +
			"204,698, decrease input length or `max_tokens` and try again": over(204698, 211334, 190001, 21333),
		"Unable to submit request because the input token count is 33000 but model only supports up to 32768. Reduce the " +
			"input token count and try again.": over(32768, 33000, 33000, 0),
		"Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context " +
			"length": over(32768, 40000, 40000, 0),
		"Invalid request: Your request exceeded model token limit: 131072 (requested: " +
			"140000)": over(131072, 140000, 140000, 0),
		"Prompt exceeds max length":                                                              over(0, 0, 0, 0),
		"invalid params, context window exceeds limit (2013)":                                    over(0, 0, 0, 0),
		"<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 129024]": over(129024, 0, 0, 0),
		"<400> InternalError.Algo.InvalidParameter: Input tokens length is 29618. Output tokens length is 8192. Range of total " +
			"length should be less than or equal to 32768": over(32768, 37810, 29618, 8192),
		"Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4097. Given: 4076 `inputs` tokens and 512 " +
			"`max_new_tokens`": over(4097, 4588, 4076, 512),
		"Input validation error: `inputs` must have less than 1000 tokens. Given: " +
			"1616": over(1000, 1616, 1616, 0),
		"The prompt is too long: 131100, model maximum context length: " +
			"131071": over(131071, 131100, 131100, 0),
		"'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's maximum context length is 8192 tokens " +
			"and your request has 1000 input tokens (8192 > 8192 - 1000).": over(8192, 9192, 1000, 8192),
		"The decoder prompt (length 5000) is longer than the maximum model length of 4096. Make sure that `max_model_len` " +
			"is no smaller than the number of text tokens.": over(4096, 5000, 5000, 0),
		"You passed 4097 input tokens and requested 1 output tokens. However, the model's context length is only 4096 " +
			"tokens, resulting in a maximum input length of 4095 tokens. Please reduce the length of the input prompt.": over(
			4096, 4098, 4097, 1,
		),
		"The input (5000 tokens) is longer than the model's context length (4096 " +
			"tokens).": over(4096, 5000, 5000, 0),
		"Requested token count exceeds the model's maximum context length of 131072 tokens. You requested a total of " +
			"140000 tokens: 100000 tokens from the input messages and 40000 tokens for the completion. Please reduce the " +
			"number of tokens.": over(131072, 140000, 100000, 40000),
		"request (14429 tokens) exceeds the available context size (8192 tokens), try increasing " +
			"it": over(8192, 14429, 14429, 0),
		"The number of tokens to keep from the initial prompt is greater than the context length (n_keep: 4683>= n_ctx: " +
			"4096). Try to load the model with a larger context length.": over(4096, 4683, 4683, 0),
		"the input length exceeds the context " +
			"length": over(0, 0, 0, 0),
		"Prompt length (5000) exceeds maximum input length " +
			"(4096)": over(4096, 5000, 5000, 0),
		"prompt token count of 135000 exceeds the limit of " +
			"128000": over(128000, 135000, 135000, 0),
		"Please reduce the length of the messages or completion. Current length is 9000 while limit is " +
			"8192": over(8192, 9000, 9000, 0),
		"the number of input tokens 5000 cannot exceed the total tokens limit 4096 for this " +
			"model": over(4096, 5000, 5000, 0),
		"length of prompt_tokens (40000) must be less than max_seq_len " +
			"(32768).": over(32768, 40000, 40000, 0),
		"Input length 33000 exceeds the maximum length " +
			"32768": over(32768, 33000, 33000, 0),
		"too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 4292. Try using a shorter " +
			"prompt": over(4081, 4292, 4292, 0),
		"Requested tokens (5171) exceed context window of " +
			"4096": over(4096, 5171, 5171, 0),
		"Request body too large for gpt-4o-mini model. Max size: 8000 tokens. " +
			"tokens_limit_reached": over(8000, 0, 0, 0),
		"<400> InternalError.Algo.InvalidParameter: Total message token length exceed model limit (1000000 " +
			"tokens)": over(1000000, 0, 0, 0),
		"Total tokens of image and text exceed max message " +
			"tokens.": over(0, 0, 0, 0),
		"The prompt (total length 5000) is too long to fit into the model (context length 4096). Make sure that it " +
			"fits.": over(4096, 5000, 5000, 0),
		"Too many input tokens. Max input tokens: 42000, request input token count: " +
			"45000": over(42000, 45000, 45000, 0),
		"too many tokens: size limit exceeded by 11326 tokens. Try using shorter or fewer " +
			"inputs.": over(0, 0, 0, 0),
		"Invalid 'input': maximum context length is 8192 " +
			"tokens.": over(8192, 0, 0, 0),
		"Context size has been " +
			"exceeded.": over(0, 0, 0, 0),
		"The input token count exceeds the maximum number of tokens allowed " +
			"1048576.": over(1048576, 0, 0, 0),
	} {
		for name, shape := range shapes {
			if name == "wrapped by a terminal" || name == "upper case" {
				continue // they break numbers' neighbours, which no vendor does
			}
			require.Equal(t, want, ReadLength(400, []byte(shape(said))), "%s: %s", name, said)
		}
	}
}

// What sounds alike and is no request over a context window.
func TestReadLengthIsNotFooled(t *testing.T) {
	for _, said := range []string{
		"max_tokens: 64000 > 8192, which is the maximum allowed number of output tokens for claude-3-5-sonnet",
		"`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` is less than the " +
			"`context_window` for this model",
		"max_tokens is too large: 200000. This model supports at most 16384 completion tokens, whereas you provided 200000.",
		"Range of max_tokens should be [1, 8192]",
		"Rate limit reached for gpt-4o in organization org-1 on tokens per min (TPM): Limit 30000, Used 29000, Requested " +
			"2000. Please try again in 2s.",
		"This request would exceed your organization's rate limit of 30,000 input tokens per minute.",
		"Too many tokens, please wait before trying again.",
		"Invalid 'input[3].id': string too long. Expected a string with maximum length 64, but got a string with length " +
			"408 instead.",
		"Invalid 'messages': array too long. Expected an array with maximum length 2048, but got an array with length " +
			"2049 instead.",
		"messages.0.content.1.image.source.base64: image exceeds 5 MB maximum: 5316000 bytes > 5242880 bytes",
		"Request exceeds the maximum size",
		"`temperature` exceeds the maximum of 1",
		"You exceeded your current quota, please check your plan and billing details.",
		"The total number of stop sequences exceeds the limit of 4",
		"`max_tokens` must be greater than `thinking.budget_tokens`. See " +
			"https://docs.claude.com/extended-thinking#max-tokens-and-context-window-size",
		"tools: too many tools, the maximum is 128",
		"Request payload size exceeds the limit: 20971520 bytes.",
		"The maximum tokens you requested exceeds the model limit of 8192. Try again with a maximum tokens value that is " +
			"lower than 8192.",
		"prompt_cache_key: String should have at most 64 characters",
	} {
		for name, shape := range shapes {
			require.Equal(t, Length{}, ReadLength(400, []byte(shape(said))), "%s: %s", name, said)
		}
	}
	echoed := `{"detail":[{"loc":["body","temperature"],"msg":"must be a ` +
		`number","input":{"messages":[{"role":"user","content":"prompt is too long: 9 tokens > 8 maximum"}]}}]}`
	require.Equal(t, Length{}, ReadLength(422, []byte(echoed)), "what the user wrote is not what the vendor says")
	require.Equal(t, Length{},
		ReadLength(402, []byte("Prompt tokens limit exceeded: 12345 > 8192. To increase, add credits.")))
	require.Equal(t, Length{}, ReadLength(200, []byte(`{"error":{"message":"prompt is too long"}}`)))
}

// Waiting does not make a request smaller.
func TestReadLengthOverAnAllowance(t *testing.T) {
	for said, want := range map[string]Length{
		"Request too large for gpt-4.1 in organization org-1 on tokens per min (TPM): Limit 30,000, Requested 131,538. " +
			"The input or output tokens must be reduced in order to run successfully.": {
			Excess: OverAllowance, Limit: 30000, Total: 131538,
		},
		"Rate limit reached on tokens per day (TPD): Limit 5000, Used 0, Requested " +
			"6000.": {Excess: OverAllowance, Limit: 5000, Total: 6000},
	} {
		for name, shape := range shapes {
			if name != "wrapped by a terminal" {
				require.Equal(t, want, ReadLength(429, []byte(shape(said))), "%s: %s", name, said)
			}
		}
	}
}

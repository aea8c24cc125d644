// Package upstreamtest contains a strict fake of model vendors for tests. It refuses the requests that the real vendor
// refuses, in the vendor's words.
//
// A Server is an http.Handler and one of seven vendors: Anthropic, Kimi, DeepSeek, GLM, OpenAI, Google or any vendor of
// chat completions. It applies the vendor's rules in the vendor's order. It signs thinking and verifies the signatures
// that come back. It sends queued or default answers, whole or as streams, and records every request with its verdict.
// The command fakevendor runs it for manual trials.
//
// # Rules
//
// vendorRules lists the rules of each vendor in the order of their application. A rule consists of rows. A row has a
// place in the body, a condition and a refusal. One walker applies all rows. A rule about several objects, such as calls
// and results, is a function in a row, wrapped by "by". A function wrapped by "run" only reads the request.
//
// Each rule names its source, which docs/conformance.md prints. The table refusals in refusals_test.go has at least one
// request for each rule, with the vendor's answer. A new refusal is a row of a rule and a row of that table.
//
// # Signatures
//
// A signature, or the data of a redacted block, contains a MAC. The MAC covers the backend's name, the model, the block's
// text, the earlier blocks of its answer, the conversation before the answer and the previous thinking block. So any
// Server of the same name verifies it without memory.
//
// A block is valid if its text is unchanged and it has its original position in its answer. A block that was issued
// without text may have any text. With the prefix check, the conversation before the block must be unchanged, too. Only
// cache_control and a leading run of thinking blocks may differ.
//
// Thinking of older turns may be missing: without the prefix check that of any answer, with it a leading run only. The
// latest turn is everything after the user's last message without results. Its thinking must be complete and in order,
// or missing altogether. Only this rule needs memory of the newest answers.
//
// # Responses
//
// Encrypted content contains its item's id and a MAC under the backend's name, so it is verified without memory. All
// other rules about items use memory of the newest answers: the reasoning item of a unit, persisted items and earlier
// compactions. A reasoning item needs an item of its unit after it. An item with an id needs its reasoning item before
// it, and the first item of a unit needs it directly before.
//
// The real vendor accepts requests without reasoning or compactions. Request.Returned and Request.Missing count the reasoning
// of the current tool loop, and Request.LostCompactions names missing compactions.
//
// # Interactions
//
// The signature of a thought contains an id and a MAC under the backend's name over the thought's summary, so it is
// verified without memory. Each answer begins with a thought. The first call after a thought has its signature, too. A
// call after the user's last step needs a thought before it in its step. The strings that Google documents as replacements
// for signatures belong to another API and are refused.
//
// # Prompt cache
//
// With Config.PromptCache, the vendor caches prefixes of prompts of at least 1,024 tokens. They expire five minutes after
// their last use. Each API key and model has its own cache. Anthropic caches prefixes that end at a cache_control, and
// finds them up to 20 blocks before one. Other vendors cache in steps of 128 tokens. Answers report the tokens read.
// Those of Anthropic also report the tokens written.
//
// # Structure
//
// ValidateMessages and ValidateChat check the structure of a request by the combined rules of Anthropic, OpenAI and
// Mistral, in the words of the vendor of the broken rule. They ignore rules that depend on the model, the account or a
// header: modes of thinking, betas and signatures. They also ignore Mistral's rule that ids have exactly nine letters and
// digits, because no other vendor's ids have that form.
//
// # Schemas of tools
//
// Config.Chat.Schemas selects the rules for schemas, in words that users of the vendors have reported. The rules of
// Anthropic always apply. Google and Moonshot have more rules than these.
//
// # Assumptions
//
// Some refusals are modelled on similar ones because their words are unknown: any thinking while it is off, a temperature
// on newer models without thinking, and "adaptive" at Kimi. The reason "prefix_mismatch" in input_transformations is
// assumed. In Responses, so are the refusals of previous_response_id together with conversation and of reasoning without
// id and encrypted content, and the strictness of units. Tokens are estimated as a quarter of the bytes.
package upstreamtest

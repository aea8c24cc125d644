// Package upstreamtest is what tests run against in place of a vendor: a strict
// fake that refuses what the real one refuses, in its words.
//
// A Server is an http.Handler and one of seven vendors: Anthropic, Kimi, DeepSeek,
// GLM, OpenAI, Google or, for all others that speak it, Chat completions. It applies the vendor's
// rules in the vendor's order, signs thinking and verifies what comes back, answers what the
// test has queued or something of its own, whole or streamed, and keeps what it saw and what
// it thought of it. Package fakevendor beneath is the same as a program, for trials by hand.
//
// # Rules
//
// What a vendor refuses stands in vendorRules, in the order in which it is applied. A rule has rows, each of a place
// in the body, what must hold there and the refusal where it does not; one walker applies them all. A new refusal is
// a row of the rule that has its source. A rule about more than one object (calls and results, signatures, units of
// reasoning) is a function that a row names by "by"; it also may only read, by "notes".
//
// # Signatures
//
// A signature, or the data of a redacted block, is a MAC over the backend's name,
// the model, the block's text, what its answer said before it, the conversation
// before the answer, and the thinking block before it. So it can be verified
// without memory, by any Server of the same name. By itself a block holds if its
// text is as it was (a block that was issued without text may have any) and it
// stands where it stood in its answer. With the prefix check the conversation
// before it must be the same, too: only cache_control and a leading run of
// thinking blocks may differ. Thinking of older turns may be missing; without
// the prefix check any answer's, with it a leading run only. The thinking of the
// latest turn, which is everything since the user last said something that is no
// result, must be there whole and in order or not at all; for that rule alone
// the newest answers are remembered.
//
// # Responses
//
// Encrypted content holds its item's id and a MAC under the backend's name, so it is verified without memory,
// too. Everything else about items goes by memory of the newest answers: which reasoning item began the unit
// of an item, what is persisted, which compaction came before. A reasoning item must have something of its
// unit behind it, and an item that still has its id its reasoning item somewhere before it, the first one
// right before it. Request.Kept and Request.Lost count the reasoning of the current tool loop,
// Request.LostCompactions names compactions that were left out: the real vendor would go on without a word.
//
// # Interactions
//
// The signature of a thought holds an id and a MAC under the backend's name over the thought's summary, so it is verified
// without memory. Each answer begins with a thought, and the first call behind one has its signature, too. A call since the
// user spoke last needs a thought before it in its step; the strings that Google documents in place of a signature are
// for another API and are refused.
//
// # Prompt cache
//
// With Config.PromptCache the vendor keeps the beginnings of prompts of at least 1,024 tokens, for five minutes from
// their last use, each for the account of its key and the model: Anthropic those that end at a cache_control, which it
// finds up to 20 blocks before one, others all in steps of 128 tokens. Answers tell what was read, and of Anthropic
// what was put there, as the vendor does.
//
// # Structure
//
// ValidateMessages and ValidateChat check the structure of a request by the union
// of the rules of Anthropic, OpenAI and Mistral, and answer in the words of the vendor of
// the broken rule. What depends on the model, the account or a header (modes of thinking,
// betas, signatures) is no part of a request's structure and is left to a Server. So is
// Mistral's demand for ids of exactly nine letters and digits, which no other vendor's
// ids can meet.
//
// # Schemas of tools
//
// What a vendor refuses of them is Config.Chat.Schemas, in the words that users of the vendor have reported;
// the rules of Anthropic's messages always hold. Google's and Moonshot's are more than these.
//
// # What is known from where
//
// Each rule names its source, which docs/conformance.md prints: threads and pages in which the vendor is seen to
// refuse it, or belief.
//
// # What is not known
//
// Some rules have no text that is known by its letter: the refusal of any
// thinking while it is off, of a temperature on newer models without thinking, of
// "adaptive" by Kimi, and the reason "prefix_mismatch" in input_transformations.
// These are made up after their neighbours. So are, of Responses, what is said of previous_response_id
// beside conversation and of reasoning without both id and encrypted content; and how strictly OpenAI holds
// a unit together. Tokens are estimated as a quarter of the bytes.
package upstreamtest

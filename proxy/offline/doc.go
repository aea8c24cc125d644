// Package offline is a demonstration and test model: a small, deterministic, extractive responder behind the
// Anthropic messages dialect, in English and Russian, so that the service does its main job on a machine with no
// key and no network.
//
// It is not a language model. It generates no knowledge: everything it says is a sentence that it was told, a
// sentence of a passage that a tool returned, or the result of a tool, sometimes with the grammatical person turned
// ("my name is …" becomes "Your name is …"). Where nothing fits it says that it does not know.
//
// # What it reads
//
// Only the request. [Model] keeps no state between calls, and system prompts are never read for facts. The role is
// recognised by the tools offered:
//
//   - Delegating: a tool whose only required property is a string named task is an agent. The last request of the
//     user is split into steps; each becomes a tool_use for the agent that the step names, that an earlier step or
//     message makes likely, or whose description fits best. Dependent steps go one answer at a time, independent
//     ones for different agents go together. The position in the plan is the number of calls already made after the
//     request. The final answer is the tool results, joined.
//   - Answering: everything else. Statements of the user are acknowledged; questions are answered from the best
//     matching statement of the user's earlier turns, or by a tool that looks like a calculator, date arithmetic or
//     a search over documents (see tools.go for what "looks like" means).
//
// # How it decides
//
// Sentences are compared by stems, by a few bilingual synonym sets for common personal relations, by whose attribute
// is spoken of (my name is not my sister's name), and by age: of two statements on one subject the newer one wins.
// A question that leaves out what is asked ("And the tower room?") takes it from the one before it when documents are
// searched; what it names must stand in the answer's sentence, or above it under the same heading.
// The word tables in lexicon.go are small on purpose and hold grammar words and synonyms, never an answer.
//
// # What it cannot do
//
// It does not reason, infer or combine statements, resolve pronouns beyond what was said just before, understand irony
// or negation beyond a few words, spell-check, translate, or write. Russian statements with a finite verb in the
// first person are quoted, not turned, because the agreement of the verb would have to be generated. Commands that
// none of the offered tools fits are treated as questions over what it was told. Of a message it reads the first 32 KiB, and of
// the user's earlier messages the newest 256 KiB. max_tokens, sampling parameters,
// images and documents are ignored; token counts are estimates from words.
package offline

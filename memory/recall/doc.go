// Package recall finds in the memory of a chat what was said about something. It knows
// neither stores nor models: stored messages go in, literal pieces of them come out.
//
// An Index holds the messages of one history; Search looks through those of one chat. An
// index is of use from its first message on: it is built newest first, each message that
// is written is appended, and older ones are put in front. Nothing of one index shows in
// the ranking of another.
//
// The unit of meaning is the exchange: a user's message and what follows it up to the
// next. What is ranked, cut and shown is a message, by what its words score (BM25 of
// package textindex), by what the messages around it lend it, by its author and its time.
// Time in a question, English or Russian, speaks for the messages of that time. A long
// message is shown by a piece around what matched, and of equal messages one is shown.
//
// Sizes are bytes, budgets are tokens of four characters, times of messages are Unix
// seconds. Nothing here fails: what cannot be read is not found.
package recall

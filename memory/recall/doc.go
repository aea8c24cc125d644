// Package recall finds in the memory of a chat what was said about something. It knows neither stores nor models:
// stored messages go in, literal pieces of them come out. An Index holds the messages of one history and is of use
// from its first message on; Search looks through those of one chat.
//
// It owns its indexes, in memory, and no goroutine. It never makes a word up: what it gives is a piece of a message,
// to the letter. Nothing of one index ever shows in the ranking of another, and nothing here fails: what cannot be
// read is not found.
package recall

// The unit of meaning is the exchange: a user's message and what follows it up to the
// next. What is ranked, cut and shown is a message, by what its words score (BM25 of
// package textindex), by what the messages around it lend it, by its author and its time.
// Time in a question, English or Russian, speaks for the messages of that time. A long
// message is shown by a piece around what matched, and of equal messages one is shown.
//
// Sizes are bytes, budgets are tokens of four characters, times of messages are Unix
// seconds. Nothing here fails: what cannot be read is not found.

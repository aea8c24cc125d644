// Package thinking keeps the thinking blocks of a conversation valid on their way to a vendor, and takes them out
// when the vendor proves that they are not. An Observer collects an answer as it passes. A Replay puts whole stored
// turns back. A Session is the Replay of the main pipeline: it also removes what the backend must not see. Classify,
// Strip and Refill serve the one retry.
//
// It owns a request's replay and no more: turns are the ledger's. It has no goroutine. It edits a request by offsets
// and never changes what no rule names, nor takes a block out of the middle of a chain.
package thinking

// A request is edited by offsets; what no rule names keeps its bytes, and a request
// with nothing to do is the same slice. What these edits break beyond the messages
// (a thinking mode that no longer fits, effort, context management) is for the last
// hop to mend.
//
// # The chain
//
// Vendors may bind a block to everything before it, earlier blocks included. So of the
// blocks of known turns those are kept which form a chain: the newest, the one that stood
// last in the request which produced it, and so on back. What is left out is thereby what
// was not there before, or a leading run, and never a block in the middle. What another
// backend of the vendor thought is a chain of its own as long as none of the asked
// backend's answers was given in sight of it. An unknown block counts as a link when the
// chain leads to it by its key.

// Package conversation reconciles a request with the conversation that it continues, in whatever form the client
// replays that. A conversation is a tree of answered turns: each has the messages that it answers and a parent.
// Continue finds the branch that a request goes on with, replaces its messages by the bytes that they had, inserts
// the tool rounds that the client left out, and says where the answer will be.
//
// It owns nothing: the tree is the ledger's, append-only, and a request only reads it, so that requests may run
// concurrently. It never contradicts the client: where the client shows something different from a branch, the branch
// ends there. DESIGN.md says how requests are matched.
package conversation

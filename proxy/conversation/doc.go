// Package conversation makes a request say what its conversation was, however the
// client replays it.
//
// A conversation is a tree of answered turns: each with the messages that it
// answers and the turn that these followed. Nothing in it is ever changed, and a
// request only reads it, so that requests may run side by side: the main dialogue,
// title requests and subagents under one id are branches.
//
// Continue finds the branch that a request goes on with, and gives the messages of
// that branch the bytes that they had, puts in the rounds of tools that the client
// left out, and says where the answer will stand. What the client shows is never
// contradicted: where it says something else than a branch, the branch ends.
// Thinking is not written here; package thinking puts it back, for which Continued
// tells it which turns the messages are. DESIGN.md says how requests are matched.
package conversation

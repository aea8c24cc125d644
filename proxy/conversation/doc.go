// Package conversation reconciles a request with the conversation that it continues, in whatever
// form the client replays that.
//
// A conversation is a tree of answered turns: each has the messages that it answers and a parent,
// the turn that these followed. The tree is append-only and a request only reads it, so that
// requests may run concurrently: the main dialogue, title requests and subagents under one id are
// branches.
//
// Continue finds the branch that a request goes on with. It replaces the messages of that branch by
// the bytes that they had, inserts the tool rounds that the client left out, and says where the
// answer will be. It never contradicts the client: where the client shows something different from
// a branch, the branch ends there. Thinking is put back by package thinking, which learns from
// Continued which turns the messages are. DESIGN.md says how requests are matched.
package conversation

// Package past reads histories without a lease: pages, archives, positions of messages, search, and notes.
//
// It owns the search indexes of this process. Its reads may miss the newest messages of a chat. It changes nothing of
// what a chat has said.
package past

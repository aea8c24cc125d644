// Package past reads histories without a lease: pages, archives, positions of messages, search, and notes.
//
// It owns the search indexes of this process. Its reads may miss the newest messages of a chat. It never changes the
// messages of a chat.
package past

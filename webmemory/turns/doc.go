// Package turns decides which request may write to a chat, and starts runs.
//
// Admission checks a post, Leaser takes the chat's lease, and Starter starts the run. Resumer resumes a run after an
// answer to its waits. Takeover takes over runs of dead processes. Restorer and WriteBacker restore runs that Redis
// lost. A package above turns changes a chat only with a lease from Leaser.
package turns

// Package turns decides who may write to a chat, and begins runs.
//
// A post is checked (Admission), takes the chat's lease (Leaser), and starts a run (Starter). An answer to a wait resumes
// one (Resumer). Runs of dead processes are taken over (Takeover), and runs that Redis lost are restored (Restorer,
// WriteBacker). A package above it changes a chat only with a lease from Leaser.
package turns

// Package rag answers from documents. A Library keeps the collections of a
// docstore.Store searchable in this process and in step with it. A Session is what one
// subagent gets of it for one run: searches in the collections that it may read,
// passages with numbers that stay as long as the session lasts, and the check of an
// answer that cites them as [n]. A Question is one delegation of that session.
//
// Passages go to a model in an envelope that they cannot close, see SystemRule;
// histories keep ids and quotes of them only, so that a document that is deleted
// does not live on there.
package rag

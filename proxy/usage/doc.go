// Package usage counts the tokens of model calls: it reads them from answers of
// both dialects as they pass, keeps a record of every call and adds records up.
//
// Records go to a bounded store by a bounded background writer. A model call
// never waits for it: what cannot be written is counted as dropped and logged.
// Without a store the last records of this process are kept, so that a report is
// possible still.
package usage

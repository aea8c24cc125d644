package loader

import (
	"errors"
	"fmt"
)

// Code is the reason of a refusal, for programs.
type Code string

// The reasons why a file is not read.
const (
	Empty       Code = "empty"       // it holds no text
	TooLarge    Code = "too_large"   // it exceeds a limit
	Unsupported Code = "unsupported" // its type is not read here
	Encrypted   Code = "encrypted"   // it needs a password
	Damaged     Code = "damaged"     // it is not what its type says
	Encoding    Code = "encoding"    // its bytes are no text in a known encoding
	Illegible   Code = "illegible"   // its characters are not what a reader of it sees
	Timeout     Code = "timeout"     // reading it takes too long
	Unreadable  Code = "unreadable"  // the file system does not give it
	Changed     Code = "changed"     // it was written to while it was read
	// ExtractorFailed: the program or service for its type did not give its text. It
	// may when it is tried again.
	ExtractorFailed Code = "extractor_failed"
	Skipped         Code = "skipped" // it is left out on purpose: hidden, a link
)

// Error is a refusal. Its text is a sentence for the file's sender.
type Error struct {
	Code     Code
	Sentence string
	// Line is the line of a JSONL file that is refused, from 1; 0 if all of it is.
	Line int
	Err  error // the cause, nil if there is none to tell
}

func (e *Error) Error() string { return e.Sentence }

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Err }

// CodeOf is the code of a refusal; "" for any other error, as one of the network
// or a cancelled context.
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

func refuse(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Sentence: fmt.Sprintf(format, args...)}
}

// damaged refuses a file that its reader cannot follow.
func damaged(kind string, cause error) *Error {
	return &Error{Code: Damaged, Sentence: "the file is damaged: it cannot be read as " + kind, Err: cause}
}

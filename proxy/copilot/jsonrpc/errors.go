package jsonrpc

import (
	"errors"
	"fmt"
)

// Ends of a connection and failures of a call.
var (
	// ErrStopped: Close was called on this side.
	ErrStopped = errors.New("the connection was closed on this side")
	// ErrTransportClosed: the connection broke. The cause is wrapped with it.
	ErrTransportClosed = errors.New("the connection broke")
	// ErrFrameTooLarge: a frame is above Config.MaxFrame. One from the peer ends
	// the connection, one of ours fails its call and is not sent.
	ErrFrameTooLarge = errors.New("the frame is too large")
	// ErrProtocol: the peer sent what JSON-RPC or its framing do not allow.
	ErrProtocol = errors.New("the peer broke the protocol")
	// ErrUnsent: the call's context ended before its first byte was written.
	ErrUnsent = errors.New("the call was not sent")
)

// Codes of the JSON-RPC 2.0 specification.
const (
	CodeMethodNotFound = -32601
	CodeInternal       = -32603
)

// Error is an answer that says that a call failed.
type Error struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Method  string `json:"-"` // that was called
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s failed: %s (code %d)", e.Method, e.Message, e.Code)
}

package copilot

import (
	"errors"
	"fmt"
	"strings"

	"github.com/sourcegraph/jsonrpc2"
)

// How things end. Match them with errors.Is; causes are wrapped.
var (
	// ErrRouterStopped: the Router was closed on this side.
	ErrRouterStopped = errors.New("the connection was closed on this side")
	// ErrTransportClosed: the connection to the CLI broke, and with it every
	// session of its Router. A turn that was under way is lost; the session can be
	// resumed over a new connection.
	ErrTransportClosed = errors.New("the connection broke")
	// ErrFrameTooLarge: a message is above RouterConfig.MaxFrame. One from the CLI ends the connection, one
	// to the CLI fails its call.
	ErrFrameTooLarge = errors.New("the frame is too large")
	// ErrProtocol: the CLI sent what its protocol does not allow.
	ErrProtocol = errors.New("the peer broke the protocol")

	// ErrSessionClosed: the session was closed, here or by the CLI, or is of no
	// more use since a turn could not be brought to its end. Close it.
	ErrSessionClosed = errors.New("the session is closed")
	// ErrSlowConsumer: events came faster than the session's reader took them. This
	// session alone was given up.
	ErrSlowConsumer = errors.New("the session's events were not read fast enough")
	// ErrSessionLive: the id belongs to a session of this Router.
	ErrSessionLive = errors.New("a session with this id is in use")
	// ErrSessionUnknown: the CLI has no session with the id.
	ErrSessionUnknown = errors.New("the CLI does not know the session")
	// ErrBusy: the session's turn has not ended, or another goroutine is streaming it.
	ErrBusy = errors.New("the session is in the middle of a turn")
	// ErrNoTurn: there is nothing to stream, since nothing was sent.
	ErrNoTurn = errors.New("the session has no turn to stream")
	// ErrAborted: the turn was ended by an abort.
	ErrAborted = errors.New("the turn was aborted")
	// ErrInactive: the CLI sent nothing about the turn for too long.
	ErrInactive = errors.New("the CLI fell silent in the middle of a turn")
	// ErrNotPending: no turn waits for the result of this call: it was answered before, the
	// turn was aborted, or there never was such a call.
	ErrNotPending = errors.New("no such tool call is waiting for a result")
	// ErrUnauthorized: the CLI wants another connection token.
	ErrUnauthorized = errors.New("the CLI refused the connection token")
	// ErrStart: the CLI's process did not come to the point of listening.
	ErrStart = errors.New("the Copilot CLI did not start")
	// ErrHangs: the CLI is connected, or takes connections, and answers nothing.
	ErrHangs = errors.New("the Copilot CLI does not answer")
	// ErrUnavailable: there is no connection to the CLI at the moment.
	ErrUnavailable = errors.New("no connection to the Copilot CLI")
)

// RPCError is a call that the CLI refused. Nearly all of them have the code
// -32603, so only the text tells them apart.
type RPCError struct {
	Code    int
	Message string
	Method  string // the called method
}

func (e *RPCError) Error() string {
	return fmt.Sprintf("%s failed: %s (code %d)", e.Method, e.Message, e.Code)
}

// SessionError is a turn that failed inside the CLI, as a rule because its model
// did. The session can be used again.
type SessionError struct {
	Type    string // the CLI's word, such as "query"
	Message string
	Status  int // of HTTP, if the model's answer had one; else 0
}

func (e *SessionError) Error() string {
	if e.Status != 0 {
		return fmt.Sprintf("the turn failed: %s (%s, status %d)", e.Message, e.Type, e.Status)
	}
	return fmt.Sprintf("the turn failed: %s (%s)", e.Message, e.Type)
}

// VersionError refuses a CLI of another protocol.
type VersionError struct {
	Protocol int    // of the CLI
	CLI      string // its version, if it says so
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("the Copilot CLI %s speaks protocol %d, and this program %d to %d: install a CLI of another "+
		"version",
		e.CLI, e.Protocol, minProtocol, maxProtocol)
}

// Codes of refusals before the connection is authenticated.
const (
	codeAuthRequired = -32001
	codeAuthFailed   = -32002
)

// unknownSession names the refusal of an id that the CLI does not have.
func unknownSession(err error) error {
	if rpc, ok := errors.AsType[*RPCError](err); ok && rpc.Code == jsonrpc2.CodeInternalError &&
		strings.Contains(rpc.Message, "Session not found") {
		return fmt.Errorf("%w: %w", ErrSessionUnknown, err)
	}
	return err
}

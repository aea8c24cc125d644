// Package copilot speaks with the GitHub Copilot CLI: many sessions over one connection, each a conversation of its
// own. A Supervisor keeps a connection, a Router is one connection and routes events to sessions, a Session is Send,
// Stream, RespondTool, Abort, Close. Package chat above makes conversations of sessions.
//
// It owns the connection, the CLI's process if it runs one, and a goroutine for each of Supervisor, Router and
// process. A Router always reads: it never waits for a session that is slow, which is given up instead. It never lets
// the CLI use its own tools.
package copilot

// # The wire
//
// A CLI that runs with --headless listens on TCP and says on its standard output
// "listening on port N". Messages are JSON-RPC 2.0 in the framing of the
// Language Server Protocol.
// What is used of it, as seen with version 1.0.102, which speaks protocol 3:
//
//	→ connect {token}                        ← {protocolVersion, version}
//	→ session.create {sessionId, …}          ← {sessionId}
//	→ session.send {sessionId, prompt}       ← {messageId} at once, then events:
//	  ← session.event {sessionId, event: {type, agentId?, data}}
//	      assistant.message_delta {messageId, deltaContent}
//	      assistant.message {messageId, content, toolRequests: [{toolCallId}]}
//	      assistant.usage {inputTokens, …}
//	      permission.requested {requestId, permissionRequest: {kind, toolName}}
//	  → session.permissions.handlePendingPermissionRequest {requestId, result: {kind}}
//	      external_tool.requested {requestId, toolCallId, toolName, arguments}
//	  → session.tools.handlePendingToolCall {requestId, result}   ← {success}
//	      tool.execution_complete {toolCallId}
//	      session.error {errorType, message, statusCode}
//	      session.idle {aborted?}            the end of the turn, failed or not
//	      session.shutdown                   the end of the session, without idle
//	→ session.abort, session.destroy, session.delete {sessionId}
//	→ session.resume {sessionId, …}          as session.create, with the history
//
// All calls of one answer of the model are asked for before any result is needed.
// A call of a tool that does not exist is ended by the CLI itself. An abort that
// comes before the answer to session.send is lost. Sessions end with the last
// connection that created or resumed them; what was said stays on the CLI's disk.
// There is no flow control for a session, so this side must always read.

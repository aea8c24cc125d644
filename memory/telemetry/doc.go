// Package telemetry is how a service is seen from outside: what joins its log lines with those of the other services
// (Trail), its access log and its metrics (Service), and the thinning of warnings that repeat. A request's trace id
// comes with the header traceparent of W3C Trace Context, if that is valid, or is made here; it goes on with every
// request that a service makes on behalf of that one, and nothing else does.
//
// It owns a service's registry of metrics and the counts of warnings. It never logs what users wrote, and labels
// never take a chat or a path. It imports nothing of ours, so that every service can import it.
package telemetry

// Package webmemory is the public service. It takes a message to a chat, brings the chat's histories up to date, asks
// the apiserver to answer, stores each event before a client sees it, and relays it. Package api is its contract and a
// client.
//
// It owns the table of routes, readiness, keys, and the goroutines that watch over Redis, dead processes, lists and
// erasures. A run continues after its client disconnects. If its process dies, another process finishes it. The service
// never shows an event that is not stored, and never writes to a chat without the chat's lease.
//
// # Parts
//
// Each part imports only those above it in this list.
//
//	problem  errors to responses, and parameters of requests
//	node     what the parts of this process share, other processes, the cold tier
//	past     histories read without a lease, and search
//	runs     runs, leases, the writer, streams of events
//	erase    erasure, redaction, rewind
//	turns    who may write to a chat; how runs begin, resume and are taken over
//	chats    routes about whole chats, users and tenants
//
// # A post
//
//	http.go                finds the route, its scope and its share of the processors
//	turns/admission.go     checks the message; the idempotency key gives the run its id, and a repeated post joins it
//	turns/post.go          lists the steps: admit, takeTurn, place, note, open, ask, drive
//	turns/leaser.go        takeTurn waits for the chat's lease: the queue of this process (runs/queue.go), then Redis;
//	                       finishes the run or the change of a process that died
//	runs/writer.go         loads the chat's histories under the lease's fencing token
//	turns/start.go         builds the run's request to the apiserver
//	runs/driver.go         reads events, stores each (runs/writer.go), then shows it; stores the final answer
//	runs/streams.go        streams the events to readers, or waits for the end
//	runs/runner.go         releases the lease
//
// memory/DESIGN.md explains the order of writes, fencing, and what happens at each death.
package webmemory

// Package webmemory is the service that bots and commands talk to. It takes a message to a chat, brings the chat's
// histories up to date, asks the apiserver to answer, stores each event before a client sees it, and relays it.
// Package api, below, is the contract and a client.
//
// It owns the leases of chats, what is stored of them (memory/redisstore, cache, spool, erasures), the runs of this
// process, each driven by a goroutine, and six goroutines that watch: over the store, other processes' runs, what is
// to be written back, this process's name, the list of chats, and what is over. A run goes on when its client leaves,
// and another process finishes it when this one dies. It never shows an event that is not stored, and never writes
// into a chat without its turn. memory/DESIGN.md says why.
package webmemory

// # A post, in the order of the code
//
//	http.go       the route; errors become problems here
//	admission.go  checks the message; the idempotency key gives the run its id, and a
//	              run of that id is joined instead of begun
//	start.go      begins a run: it needs the right to write into the chat
//	turns.go      waits for that; a run that another process left open is finished first
//	turns.go      the line of this process (queue.go), then the lease in Redis:
//	              every write carries its fencing token; the keeper renews it (lease.go)
//	writer.go     the histories, brought up to date under the token
//	start.go      records the run (compare-and-set), notes it as the chat's open run,
//	              asks the apiserver, starts a driver
//	admission.go  a client that repeats the post joins the run from here on
//	read.go       streams the run's events, or waits for its end
//
// A driver brings the run to its end in a goroutine of its own:
//
//	drive.go      reads events from the apiserver
//	writer.go     puts them into the run's log, or into the spool while Redis is away
//	drive.go      folds each into the histories (writer.Append), then shows it; at the
//	              end it keeps the final answer
//	runner.go     gives the lease back
//
// # Beside the way of a post
//
//	runs.go       a run, and the list of those of this process
//	takeover.go   runs that other processes left, and events of them that Redis lost
//	storewatch.go Redis does not answer, or lost data: noticing it
//	losses.go     Redis lost data: regaining a lease, writing back
//	waitback.go   Redis lost data: putting single runs back
//	erase.go      erasing
//	tombstones.go what was taken away, in this and every other process
//	rewind.go     taking back what was said, and putting it back
//	histories.go  what chats remember, read without a turn
//	read.go       the events of runs, also of those of other processes
//	ended.go      events of ended runs on disk, for when Redis loses them
//	processes.go  the other processes of the service
//	health.go     readiness and metrics
//	sessionlog.go readable logs, one per chat
//
// # Rooms
//
// Each file's methods are those of a room: a type that holds core, what all share, and as fields the rooms that it
// calls. They lie over each other, and none calls upwards:
//
//	routes        the table of routes, over all rooms that answer them: admission, resumer, streams, eraseRoutes,
//	              redactRoutes, rewindRoutes, portable, noteRoutes, chatList, historyRoutes, oneShotRunner, tenancy,
//	              keyring, auditor, monitor
//	starter       a post's way from the turn to its run; beside it takeover and writeBacker, which begin by themselves
//	leaser        whose turn a chat is, and what has to be done before its holder begins
//	restorer      single runs that Redis lost
//	runner        runs, driven to their end; toolCalls and webhooks, which it asks and tells
//	eraser        erasing and redacting under a turn
//	tombstones    what was taken away, made true everywhere; rewinder and redactor are its parts
//	searcher      what chats remember, searched; histories, read
//	registry      the runs of this process; peers, the other processes; storeWatch, the state of Redis
//
// memory/DESIGN.md says why it is done in this way: the order of writes, turns and fencing,
// what happens at each death.

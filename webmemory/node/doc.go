// Package node holds the shared parts of one webmemory process: the settings, the memory and its copies, the
// apiserver's client, metrics and logs. It also tracks the other processes, the state of Redis, and the cold tier.
//
// It owns the files of ended runs, the audit entries, the tombstones that this disk knows (Follower) and the ids of the
// gateway's conversations. It never takes a chat's lease for a post and never drives a run.
package node

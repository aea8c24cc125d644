// Package apiserver runs the master's requests and streams their events: the
// routes of package api, the registry of runs, and nothing about a chat beyond
// its runs. A run belongs to the server, not to the socket it came by: only stop,
// erasure, its timeout and the server's end cancel it. What is logged are ids,
// never contents.
package apiserver

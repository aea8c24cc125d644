// Package openapi is the description of webmemory's public API in OpenAPI 3.1. It owns openapi.json, which is embedded
// and served as it is, and never describes what is not served: tests compare it with the routes and their answers.
//
// openapi.json is made by the package's test of the Go types of requests, answers and events, with their comments as
// descriptions, and of the table of routes that is beside it. After a change of those:
//
//	go test ./webmemory/openapi -update
package openapi

import (
	_ "embed" // of the document
	"net/http"
)

//go:embed openapi.json
var document []byte

// Document is the description as JSON. Callers must not change it.
func Document() []byte { return document }

// Serve answers GET /openapi.json.
func Serve(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	_, _ = w.Write(document) // the client is gone; there is nobody to tell
}

package proxy

import (
	"bytes"
	"net/http"
	"slices"

	"mneme/memory/secrets"
	"mneme/proxy/wire"
)

// hider takes credentials out of a backend's answer: the process's, and out of
// errors the caller's too, which a backend may have been given in place of one. Errors and headers are
// searched for all of them in every form. Answers are searched for long ones as they are: they stand in none
// by chance, so that every other answer passes byte for byte.
type hider struct {
	own    *secrets.Set
	caller http.Header
	names  [][2][]byte // names of tools as JSON: the backend's and the client's, see quotedNames
}

// quotedNames returns the backend's and the client's name of each renamed tool as JSON, see sanitize.Output.
func quotedNames(names map[string]string) (pairs [][2][]byte) {
	for short, name := range names {
		pairs = append(pairs, [2][]byte{wire.Quote(short), wire.Quote(name)})
	}
	return pairs
}

// restore puts the client's names of tools where the backend calls them otherwise.
func (h hider) restore(b []byte) []byte {
	for _, n := range h.names {
		if bytes.Contains(b, n[0]) {
			b = bytes.ReplaceAll(b, n[0], n[1])
		}
	}
	return b
}

// header cleans the header of an answer in place.
func (h hider) header(header http.Header) {
	if h.own == nil {
		return
	}
	for _, values := range header {
		for i, value := range values {
			if clean := h.own.Strike([]byte(value)); len(clean) != len(value) || string(clean) != value {
				values[i] = string(clean)
			}
		}
	}
}

// error cleans the body or the event of an error.
func (h hider) error(b []byte) []byte {
	b = h.own.Strike(b)
	return secrets.New(credentials(h.caller)...).Strike(h.restore(b))
}

// answer cleans a body that is no error.
func (h hider) answer(b []byte) []byte {
	b = h.restore(b)
	if h.own.Shows(b) {
		return h.own.Strike(b)
	}
	return b
}

// frame cleans an event of a stream.
func (h hider) frame(f wire.Frame) wire.Frame {
	if len(h.names) > 0 {
		f = wire.Frame{Raw: h.restore(f.Raw), Data: h.restore(f.Data)}
	}
	switch {
	case len(f.Data) == 0 && !h.own.Shows(f.Raw):
	case bytes.Contains(f.Data, []byte(`"error"`)):
		return wire.Frame{Raw: h.error(f.Raw), Data: h.error(f.Data)}
	case h.own.Shows(f.Raw):
		return wire.Frame{Raw: h.own.Strike(f.Raw), Data: h.own.Strike(f.Data)}
	}
	return f
}

// credentials are what a request's header presents.
func credentials(h http.Header) []string { return slices.Concat(h["X-Api-Key"], h["Authorization"]) }

// secrets are all credentials that the gateway knows.
func (c Config) secrets() *secrets.Set {
	values := slices.Clone(c.Secrets)
	for _, b := range c.Backends {
		values = append(values, b.APIKey)
	}
	for _, r := range c.Routes {
		for _, keys := range r.Keys {
			for _, key := range keys {
				values = append(values, key.Value)
			}
		}
	}
	return secrets.New(values...)
}

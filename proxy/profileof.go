package proxy

import (
	"mneme/proxy/sanitize"
)

// ProfileOf is what a backend takes of a request for a model, by the vendor's name for it, before anything was learnt
// from its answers. Why is a clause that says how its vendor was found.
func (b BackendConfig) ProfileOf(model string) (p sanitize.Profile, why string) {
	at := &backend{config: b, known: new(knowledge)}
	at.speaks = spokenBy[b.Kind]
	at.vendor, why, at.guessed = b.vendor()
	var x said
	x.backend, x.known = at, at.of(model)
	if x.known.profile.Vendor != at.vendor {
		why = "by the name of the model"
	}
	return x.sees(), why
}

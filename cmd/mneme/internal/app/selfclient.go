package app

import (
	"net/http"

	"mneme/access"
	"mneme/cmd/mneme/internal/inprocess"
	"mneme/memory/telemetry"
	webapi "mneme/webmemory/api"
)

// selfClient is a client of webmemory inside of its own process: what /mcp and chat completions
// ask it goes through its API as any client's does.
type selfClient struct {
	*webapi.Client
	hosts inprocess.Hosts
}

// selfHost is the name under which a selfClient has webmemory's handler.
const selfHost = "webmemory"

// It calls in the name of its own caller, with that caller's rights.
func newSelfClient(svc *telemetry.Service, gate *access.Gate) (*selfClient, error) {
	c := &selfClient{}
	var err error
	var inside http.RoundTripper = c.hosts.Transport(&http.Transport{})
	if gate != nil {
		inside = access.Carrier{Base: inside, Secret: gate.Secret, AsCaller: true}
	}
	c.Client, err = webapi.NewOver("http://"+selfHost,
		&http.Client{Transport: svc.Transport("webmemory", spanless{inside})})
	return c, err
}

// spanless has the span of what is asked stand below the caller's, or begin the trace: the request between has none.
type spanless struct{ http.RoundTripper }

func (s spanless) RoundTrip(r *http.Request) (*http.Response, error) {
	// the header is telemetry's copy where there is a trail
	switch parent, _ := telemetry.FromContext(r.Context()).Current(); {
	case parent != "":
		r.Header[telemetry.Header] = []string{parent}
	case r.Header.Get(telemetry.Header) != "":
		r.Header[telemetry.Spanless] = []string{"1"}
	}
	return s.RoundTripper.RoundTrip(r)
}

// serve sets the handler that answers; before that no request is made.
func (c *selfClient) serve(webmemory http.Handler) { c.hosts.Serve(selfHost, webmemory) }

package app

import (
	"net/http"

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

func newSelfClient(seen *telemetry.Service) (*selfClient, error) {
	c := &selfClient{}
	var err error
	c.Client, err = webapi.NewOver("http://"+selfHost, &http.Client{
		Transport: seen.Transport("webmemory", &inprocess.Transport{Transport: &http.Transport{}, Hosts: &c.hosts}),
	})
	return c, err
}

// serve says who answers; before that nothing is asked.
func (c *selfClient) serve(webmemory http.Handler) { c.hosts.Serve(selfHost, webmemory) }

package mcp

import (
	"context"
	"maps"
	"sync"

	"mneme/subagent/external"
)

// localPins are those of one process that has no store.
type localPins struct {
	mu   sync.Mutex
	pins map[string]map[string]external.Definition // guarded by mu
}

func (p *localPins) Pinned(_ context.Context, server string) (map[string]external.Definition, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.pins[server]), nil
}

func (p *localPins) Pin(ctx context.Context, server string, tools ...external.Definition) (
	map[string]external.Definition, error) {
	if pinned, _ := p.Pinned(ctx, server); len(pinned) > 0 {
		return pinned, nil
	}
	_ = p.Accept(ctx, server, tools...)
	return p.Pinned(ctx, server)
}

func (p *localPins) Accept(_ context.Context, server string, tools ...external.Definition) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pins == nil {
		p.pins = map[string]map[string]external.Definition{}
	}
	p.pins[server] = make(map[string]external.Definition, len(tools))
	for _, d := range tools {
		p.pins[server][d.Name] = d
	}
	return nil
}

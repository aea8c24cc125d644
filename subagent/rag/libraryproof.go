package rag

import (
	"context"
	"errors"
	"maps"
	"slices"

	"mneme/subagent/rag/docstore"
)

// proof checks hits of a replica that is behind against the store. It belongs to one search and
// asks about each document once.
type proof struct {
	replica *replica
	asked   map[string]contentHash // by id; the zero value for a deleted document
	away    bool                   // the store does not answer; if it never did, the copy counts
}

// maxProven bounds the passages that one search checks in order to have enough proven ones.
const maxProven = 1000

// proven are the passages whose documents still have their content. What is compared is the
// content's hash, so a proven passage is in the collection at this instant, even if that was made
// anew meanwhile.
func (p *proof) proven(ctx context.Context, passages []Passage) []Passage {
	ids := map[string]bool{}
	for _, hit := range passages {
		if _, asked := p.asked[hit.DocID]; !asked {
			ids[hit.DocID] = true
		}
	}
	if len(ids) > 0 && !p.away {
		p.ask(ctx, slices.Collect(maps.Keys(ids)))
	}
	if p.away && p.asked == nil {
		return passages
	}
	var proven []Passage
	for _, hit := range passages {
		if sum := p.asked[hit.DocID]; sum == hit.held.sum && sum != (contentHash{}) {
			proven = append(proven, hit)
		}
	}
	return proven
}

func (p *proof) ask(ctx context.Context, ids []string) {
	bounded, cancel := context.WithTimeout(ctx, p.replica.library.o.Patience)
	defer cancel()
	heads, err := p.replica.library.store.Heads(bounded, p.replica.collection, ids...)
	if errors.Is(err, docstore.ErrUnavailable) {
		p.away = true
		return
	}
	if err != nil { // what cannot be read proves nothing
		p.replica.library.o.Log.Error().Err(err).Stringer("collection", p.replica.collection).Msg("a search cannot be proven")
	}
	if p.asked == nil {
		p.asked = map[string]contentHash{}
	}
	for _, id := range ids {
		p.asked[id] = contentHash{}
	}
	for _, h := range heads {
		p.asked[h.ID] = contentHashOf(h.Hash)
	}
}

// document finds one document of a leg: in the copy or, if that is behind, in the store.
func (l *Library) document(ctx context.Context, g leg, id string) (h *held, there, degraded bool, err error) {
	h = g.known.document(id)
	if g.proof == nil {
		return h, h != nil, g.degraded, nil
	}
	found, err := l.store.GetAll(ctx, g.collection, id)
	if errors.Is(err, docstore.ErrUnavailable) {
		return h, h != nil, true, nil
	}
	if err != nil {
		return nil, false, false, err
	}
	d, there := found[id]
	if !there {
		return nil, false, false, nil
	}
	return hold([]docstore.Document{d}, nil)[0], true, false, nil
}

// fill reads the texts of the passages that were found: from the file, or else from the store.
// Passages whose text neither has are left out, and the result is degraded.
func (l *Library) fill(ctx context.Context, legs []leg, r *Result) {
	missing := map[docstore.Collection][]string{}
	for i := range r.Passages {
		p := &r.Passages[i]
		text, ok := p.held.text(p.ordinal)
		if ok {
			p.Text, p.held = text, nil
			continue
		}
		for _, g := range legs {
			if g.collection.String() == p.Collection && !slices.Contains(missing[g.collection], p.DocID) {
				missing[g.collection] = append(missing[g.collection], p.DocID)
			}
		}
	}
	if len(missing) == 0 {
		return
	}
	for c, ids := range missing {
		documents, err := l.fetched(ctx, c, ids)
		if err != nil {
			l.o.Log.Warn().Err(err).Stringer("collection",
				c).Msg("passages are left out of an answer: their texts are neither on disk nor can they be read from the store")
		}
		for i := range r.Passages {
			p := &r.Passages[i]
			if p.held == nil || p.Collection != c.String() {
				continue
			}
			at := p.held.Passages[p.ordinal]
			if d, ok := documents[p.DocID]; ok && int(at.End) <= len(d.Text) && sumOf(d.Text[at.Start:at.End]) == at.hash {
				p.Text, p.held = d.Text[at.Start:at.End], nil
			}
		}
	}
	r.Passages = slices.DeleteFunc(r.Passages, func(p Passage) bool {
		r.Degraded = r.Degraded || p.held != nil
		return p.held != nil
	})
}

// fetched reads documents from the store, for Options.Patience at most.
func (l *Library) fetched(ctx context.Context, c docstore.Collection, ids []string) (map[string]docstore.Document,
	error) {
	bounded, cancel := context.WithTimeout(ctx, l.o.Patience)
	defer cancel()
	return l.store.GetAll(bounded, c, ids...)
}

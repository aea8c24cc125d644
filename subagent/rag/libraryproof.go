package rag

import (
	"context"
	"errors"
	"maps"
	"slices"

	"mneme/subagent/rag/docstore"
)

// proof asks the store whether documents are still what a replica that is behind
// knows of them. It belongs to one search, which asks of each document once.
type proof struct {
	replica *replica
	asked   map[string]contentHash // by id; the zero value for what is gone
	away    bool                   // the store does not answer; if it never did, what is known counts
}

// maxProven bounds the passages that one search looks at to have enough that are
// proven.
const maxProven = 1000

// proven are the passages whose documents have their content still: a hit stands for
// the hash of a content, so what is proven by it is in the collection now, even if
// that was made anew meanwhile.
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
	if err != nil { // a damaged head proves nothing
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

// document is one document of a leg: from what is known, or, if that is behind the
// store, as the store has it.
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

// fill reads the texts of the passages that were found: from the file, and those that
// it does not have from the store. What neither has is left out.
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
			l.o.Log.Warn().Err(err).Stringer("collection", c).Msg("passages are left out of an answer: their texts are neither on disk nor can they be read from the store")
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

// fetched are documents from the store, which is given its time.
func (l *Library) fetched(ctx context.Context, c docstore.Collection, ids []string) (map[string]docstore.Document, error) {
	bounded, cancel := context.WithTimeout(ctx, l.o.Patience)
	defer cancel()
	return l.store.GetAll(bounded, c, ids...)
}

package ledger

import "context"

// fetch loads from the remote what others added to a scope, and reports whether anything came. It waits no
// longer than Config.Patience, and up to 2 s for a conversation of which this process has read nothing:
// after a restart or from another replica its thinking would be lost for good over a moment's load.
func (l *Ledger) fetch(parent context.Context, s Scope) bool {
	if l.writer.reading.Load() {
		return false // the remote is away; the writer's goroutine notices when it is back
	}
	q := Query{Scopes: []Position{l.position(s)}}
	patience := l.config.Patience
	if q.Scopes[0].Mark == (Mark{}) {
		patience = max(saveTimeout, patience)
	}
	ctx, cancel := context.WithTimeout(parent, patience)
	defer cancel()
	loaded, err := l.config.Remote.Load(ctx, q)
	came := err == nil && l.merge(q, loaded)
	if parent.Err() == nil { // a request that was cancelled says nothing about the remote
		l.writer.reading.note(err, l.config.Log, "look for turns")
	}
	return came
}

// position is a scope together with how far it was read from the remote.
func (l *Ledger) position(s Scope) Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := Position{Scope: s}
	if b := l.store.books[s]; b != nil {
		p.Mark = b.mark
	}
	return p
}

// merge takes over what was loaded, and reports whether there was anything.
func (l *Ledger) merge(q Query, loaded Loaded) bool {
	came := false
	for i, chunk := range loaded.Chunks[:min(len(loaded.Chunks), len(q.Scopes))] {
		came = l.mergeScope(q.Scopes[i], chunk) || came
	}
	return came
}

// mergeScope is merge for one scope.
func (l *Ledger) mergeScope(p Position, chunk Chunk) bool {
	var fresh []*entry
	remoteIDs := map[sum]struct{}{}
	for _, in := range chunk.Entries {
		if in.Turn == nil {
			continue
		}
		id := recordID(in.Turn)
		remoteIDs[id] = struct{}{}
		if l.has(p.Scope, id) {
			continue
		}
		// Parsing takes long, so it is done without the lock.
		e, o, err := seal(in.Turn)
		if err == nil {
			_, _, err = e.read(o)
		}
		if err == nil {
			fresh = append(fresh, e)
		}
	}
	l.mu.Lock()
	now := l.config.Now()
	l.find(p.Scope) // reads the scope's own entries first, so that identical turns are recognised
	for _, e := range fresh {
		l.store.add(e, now)
	}
	for _, in := range chunk.Entries {
		if len(in.Refused) > 0 && !l.store.isErased(p.Scope.talk(), in.Time) {
			l.store.refuse(p.Scope, in.Origin, in.Refused, now)
		}
	}
	// Turns that the remote lost, for example in a restart without persistence, are saved to it
	// again.
	var missing []*entry
	if b := l.store.books[p.Scope]; b != nil && b.read(p.Mark, chunk.Mark) {
		for _, e := range b.turns {
			if _, ok := remoteIDs[e.id]; !ok {
				missing = append(missing, e)
			}
		}
	}
	l.mu.Unlock()
	l.writer.requeue(missing)
	return len(chunk.Entries) > 0
}

// has reports whether a scope has a turn in memory.
func (l *Ledger) has(s Scope, id sum) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.find(s)
	return l.store.has(s, id)
}

// read notes how far the remote was read, from the mark that was asked for. whole is true if the
// chunk was all that the remote has of the scope: then what is only here was lost there.
func (b *book) read(start, end Mark) (complete bool) {
	b.loaded = true
	switch {
	case b.mark.Born == end.Born && start.Born == end.Born:
		b.mark.Last = max(b.mark.Last, end.Last)
		return end.Born == "" // the remote has nothing of the scope
	case b.mark != start:
		return false // another request was faster
	}
	b.mark = end
	return true
}

// saved notes where the remote has put what this process knows already, so that it is not read back:
// an entry right behind the scope's mark moves the mark on. What stands between, another process has
// put there, and it is still to be read.
func (l *Ledger) saved(items []*item, marks []Mark) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, m := range marks[:min(len(marks), len(items))] {
		b := l.store.books[items[i].Scope]
		switch {
		case b == nil || m.Born == "":
		case b.mark == Mark{} && !b.loaded && m.Last == 1: // the first entry of all
			b.mark, b.loaded = m, true
		case b.mark.Born == m.Born && b.mark.Last+1 == m.Last:
			b.mark.Last = m.Last
		}
	}
}

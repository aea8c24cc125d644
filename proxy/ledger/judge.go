package ledger

import (
	"context"
	"slices"

	"mneme/proxy/wire"
)

// shownMessage is an assistant shownMessage of a request while it is judged.
type shownMessage struct {
	index int // in the outline
	form  *Form
	// hits are, for each of the form's keys, the entries that have that key.
	hits [][]*entry
}

// view is a snapshot of what the ledger knows of a request.
type view struct {
	Request
	messages []shownMessage
	refused  *refusals
	loaded   bool // the scope was loaded from the remote before
}

// Judge says what is known of a request's assistant messages, in their order. It asks the remote
// only if this process lacks something, waits for Config.Patience at most (for a conversation of which
// it has read nothing up to 2 s), and otherwise decides by what this process knows.
func (l *Ledger) Judge(ctx context.Context, r Request) []Judged {
	v := &view{Request: r, messages: l.read(r)}
	if len(v.messages) == 0 {
		return nil
	}
	l.look(v)
	if !r.New && l.writer != nil && v.lacks() && l.fetch(ctx, r.Scope) {
		l.look(v)
	}
	return v.judge()
}

// read makes the forms of a request's assistant messages.
func (l *Ledger) read(r Request) []shownMessage {
	n := 0
	for i := range r.Outline.Messages {
		if r.Outline.Messages[i].Role == wire.RoleAssistant {
			n++
		}
	}
	messages := make([]shownMessage, 0, n)
	keys := 0
	for i := range r.Outline.Messages {
		m := &r.Outline.Messages[i]
		if m.Role != wire.RoleAssistant {
			continue
		}
		var f *Form
		if r.Read != nil {
			f = r.Read[i].Answer
		} else {
			f = l.Form(r.Outline, m, r.Dialect)
		}
		messages = append(messages, shownMessage{index: i, form: f})
		keys += len(f.keys)
	}
	hits := make([][]*entry, keys)
	for i := range messages {
		n := len(messages[i].form.keys)
		messages[i].hits, hits = hits[:n:n], hits[n:]
	}
	return messages
}

// look fills a view from this process's memory.
func (l *Ledger) look(v *view) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.find(v.Scope)
	if own != nil {
		v.loaded, v.refused = own.loaded, own.refused
	}
	for i := range v.messages {
		m := &v.messages[i]
		for j, k := range m.form.keys {
			if own != nil {
				m.hits[j] = own.index[k]
			}
			if len(m.hits[j]) == 0 && k.unique() { // an application may have copied it from another conversation
				if other := owning(l, v.Scope, k); other != nil {
					m.hits[j] = other.index[k]
				}
			}
		}
	}
}

// lacks reports whether another process may know more about the request.
func (v *view) lacks() bool {
	return !v.loaded || slices.ContainsFunc(v.messages, func(m shownMessage) bool { return m.lacks() })
}

// lacks reports whether a unique key of the message found nothing.
func (m *shownMessage) lacks() bool {
	for i, k := range m.form.keys {
		if k.unique() && len(m.hits[i]) == 0 {
			return true
		}
	}
	return false
}

// judge decides about each message.
func (v *view) judge() []Judged {
	out := make([]Judged, len(v.messages))
	turns := make([]*entry, len(v.messages))
	blocks := 0
	for i := range v.messages {
		m := &v.messages[i]
		if n := v.Nodes[m.index]; n != nil {
			turns[i] = n.entry
		} else {
			turns[i], out[i].Edited = v.turnOf(m)
		}
		blocks += len(m.form.parts)
		if turns[i] != nil && turns[i].form.thinks() {
			blocks += len(turns[i].form.parts)
		}
	}
	v.placeOnce(turns)
	states := make([]State, 0, blocks)
	keys := make([]string, 0, blocks)
	for i := range v.messages {
		m, e, j := &v.messages[i], turns[i], &out[i]
		j.Message = m.index
		start := len(states)
		for pos := range m.form.parts {
			states = append(states, v.state(m, pos, e, j.Edited))
			keys = append(keys, m.form.parts[pos].key)
		}
		j.States, j.Keys = states[start:len(states):len(states)], keys[start:len(keys):len(keys)]
		if e == nil {
			continue
		}
		j.Turn, j.Tools = e.turn, e.translate(m.form.tools)
		j.Same = e.turn.Dialect != v.Dialect || e.form.exact == m.form.exact
		if e.form.thinks() {
			start = len(states)
			for _, p := range e.form.parts {
				states = append(states, v.stateOfTurn(e, p))
				keys = append(keys, p.key)
			}
			j.TurnStates, j.TurnKeys = states[start:len(states):len(states)], keys[start:len(keys):len(keys)]
		}
	}
	return out
}

// placeOnce lets a turn stand at one message only: the one that has a key which no other turn has,
// else the last one that shows it.
func (v *view) placeOnce(turns []*entry) {
	places := make(map[*entry]int, len(turns))
	for i, e := range turns {
		if e == nil {
			continue
		}
		prev, twice := places[e]
		switch {
		case !twice:
			places[e] = i
		case v.messages[prev].names(e) && !v.messages[i].names(e):
			turns[i] = nil
		default:
			turns[prev] = nil
			places[e] = i
		}
	}
}

// names reports whether a message has a unique key of e.
func (m *shownMessage) names(e *entry) bool {
	for i, k := range m.form.keys {
		if k.unique() && slices.Contains(m.hits[i], e) {
			return true
		}
	}
	return false
}

// foreign reports whether another vendor produced the entry.
func (v *view) foreign(e *entry) bool { return e.turn.Origin.Vendor != v.Target.Vendor }

// stateOfTurn judges one block of a stored turn.
func (v *view) stateOfTurn(e *entry, p part) State {
	switch {
	case p.key == "":
		return NoThinking
	case v.refused.has(v.Target, p.key):
		return Refused
	case v.foreign(e):
		return Foreign
	}
	return Proven
}

// state judges one block of a message that shows the turn e, or no known turn.
func (v *view) state(m *shownMessage, pos int, e *entry, edited bool) State {
	p := m.form.parts[pos]
	if p.key == "" {
		return NoThinking
	}
	if v.refused.has(v.Target, p.key) {
		return Refused
	}
	if e == nil && m.strange() {
		return Unknown // although another turn has the same thinking
	}
	maker, foreign := v.maker(m, p)
	if e == nil && maker != nil && maker.turn.Cut {
		// a block of an answer that broke off: only here may a block count though the message does not show its turn
		e = maker
	}
	switch {
	case e != nil && v.inPlace(m.form, p, pos, e):
		if v.foreign(e) {
			return Foreign
		}
		return Proven
	case foreign:
		return Foreign
	case maker != nil, edited:
		return Altered
	case e == nil:
		return Unknown
	case v.foreign(e):
		return Foreign
	}
	return Altered
}

// inPlace reports whether a block has in the turn e the place that it has in the message.
func (v *view) inPlace(f *Form, p part, pos int, e *entry) bool {
	if e.turn.Dialect != v.Dialect {
		// Blocks of different dialects can only be compared by their text.
		return p.start < p.end && !slices.ContainsFunc(f.keysOf(p), func(k key) bool {
			return k.kind != byThought || !slices.Contains(e.form.thoughts, k.sum)
		})
	}
	return pos < len(e.form.parts) && e.form.parts[pos].key == p.key
}

// maker is the entry that a block comes from, by the block's own keys; nil if none or several are
// known, and for a block that is what an entry has but proves nothing by it, since only its text
// says so. foreign is true if all of them are another vendor's.
func (v *view) maker(m *shownMessage, p part) (e *entry, foreign bool) {
	for i, hits := range m.hits[p.start:p.end] {
		if len(hits) == 0 {
			continue
		}
		if !slices.ContainsFunc(hits, func(e *entry) bool { return !v.foreign(e) }) {
			return nil, true
		}
		if one := only(hits); one != nil {
			same := func(q part) bool { return q.key == p.key }
			if !m.form.keys[p.start+i].unique() && slices.ContainsFunc(one.form.parts, same) {
				return nil, false
			}
			return one, false
		}
	}
	return nil, false
}

// only is the single complete turn in a list, or the single turn that broke off; nil if there are
// several.
func only(hits []*entry) *entry {
	var one *entry
	for _, e := range hits {
		if e.turn.Cut {
			continue
		}
		if one != nil {
			return nil
		}
		one = e
	}
	if one == nil && len(hits) == 1 {
		return hits[0]
	}
	return one
}

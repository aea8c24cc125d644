package ledger

import (
	"context"
	"slices"

	"mneme/proxy/wire"
)

// message is an assistant message of a request that is judged.
type message struct {
	index int // in the outline
	form  *Form
	// hits has for each of the form's keys who is found by it.
	hits [][]*entry
}

// view is what the ledger knows of a request at one moment.
type view struct {
	Request
	messages []message
	refused  []*refusals
	known    bool // the remote was asked for the scope before
}

// Judge says what is known of a request's assistant messages, in their order. It
// asks the remote only for what this process does not know, for Config.Patience at
// most, and goes by what this process knows otherwise.
func (l *Ledger) Judge(ctx context.Context, r Request) []Judged {
	v := &view{Request: r, messages: l.read(r)}
	if len(v.messages) == 0 {
		return nil
	}
	l.look(v)
	if l.writer != nil && v.lacks() && l.fetch(ctx, v) {
		l.look(v)
	}
	return v.judge()
}

// read gives the forms of a request's assistant messages.
func (l *Ledger) read(r Request) []message {
	n := 0
	for i := range r.Outline.Messages {
		if r.Outline.Messages[i].Role == wire.RoleAssistant {
			n++
		}
	}
	messages := make([]message, 0, n)
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
			f = l.form(r.Outline, m, r.Dialect)
		}
		messages = append(messages, message{index: i, form: f})
		keys += len(f.keys)
	}
	hits := make([][]*entry, keys)
	for i := range messages {
		n := len(messages[i].form.keys)
		messages[i].hits, hits = hits[:n:n], hits[n:]
	}
	return messages
}

// look takes what is known out of the store.
func (l *Ledger) look(v *view) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v.refused, v.known = v.refused[:0], false
	own := l.find(v.Scope)
	if own != nil {
		v.known = own.loaded
		v.refused = append(v.refused, own.refused)
	}
	if !v.Minted {
		for i := range v.messages {
			m := &v.messages[i]
			for j, k := range m.form.keys {
				if own != nil {
					m.hits[j] = own.index[k]
				}
			}
		}
		return
	}
	v.known = false
	if pool := l.find(v.Scope.pool()); pool != nil {
		v.known = pool.loaded
		v.refused = append(v.refused, pool.refused)
	}
	for l.lookEverywhere(v) {
	}
}

// lookEverywhere is look in all conversations of the route. It wants to be called
// again if what it found had to be read first, since that may change what is found.
func (l *Ledger) lookEverywhere(v *view) (again bool) {
	all := l.store.routes[v.Scope.route()]
	for i := range v.messages {
		m := &v.messages[i]
		for j, k := range m.form.keys {
			if !k.unique() {
				continue
			}
			hits := all.find(k)
			for _, e := range hits {
				again = again || e.form == nil
				if l.find(e.turn.Scope) == nil { // a use of it
					hits = nil
					break
				}
			}
			m.hits[j] = hits
		}
	}
	return again
}

// lacks says whether another process may know more.
func (v *view) lacks() bool {
	if !v.Minted && !v.known {
		return true
	}
	for i := range v.messages {
		if v.messages[i].lacks(v.Minted) {
			return true
		}
	}
	return false
}

func (m *message) lacks(minted bool) bool {
	found := false
	for j, k := range m.form.keys {
		if len(m.hits[j]) > 0 {
			found = true
		} else if k.unique() {
			return true
		}
	}
	return !found && !minted && len(m.form.keys) > 0
}

func (v *view) judge() []Judged {
	out := make([]Judged, len(v.messages))
	turns := make([]*entry, len(v.messages))
	blocks := 0
	for i := range v.messages {
		m := &v.messages[i]
		if n := v.Known[m.index]; n != nil {
			turns[i] = n.entry
		} else {
			turns[i], out[i].Edited = v.turnOf(i, turns)
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
		from := len(states)
		for at := range m.form.parts {
			states = append(states, v.state(m, at, e, j.Edited))
			keys = append(keys, m.form.parts[at].key)
		}
		j.States, j.Keys = states[from:len(states):len(states)], keys[from:len(keys):len(keys)]
		if e == nil {
			continue
		}
		j.Turn, j.Tools = e.turn, e.translate(m.form.tools)
		j.Same = e.turn.Dialect != v.Dialect || e.form.exact == m.form.exact
		if e.form.thinks() {
			from = len(states)
			for _, p := range e.form.parts {
				states = append(states, v.stateOfTurn(e, p))
				keys = append(keys, p.key)
			}
			j.TurnStates, j.TurnKeys = states[from:len(states):len(states)], keys[from:len(keys):len(keys)]
		}
	}
	return out
}

// placeOnce sees that a turn stands at one place: where a key that no other turn
// has names it, else where it is shown last.
func (v *view) placeOnce(turns []*entry) {
	places := make(map[*entry]int, len(turns))
	for i, e := range turns {
		if e == nil {
			continue
		}
		before, twice := places[e]
		switch {
		case !twice:
			places[e] = i
		case v.messages[before].names(e) && !v.messages[i].names(e):
			turns[i] = nil
		default:
			turns[before] = nil
			places[e] = i
		}
	}
}

// names says whether a message has a key of e's that cannot be another's.
func (m *message) names(e *entry) bool {
	for i, k := range m.form.keys {
		if k.unique() && slices.Contains(m.hits[i], e) {
			return true
		}
	}
	return false
}

// rejected says whether the target refused a block before.
func (v *view) rejected(key string) bool {
	for _, r := range v.refused {
		if r.has(v.Target, key) {
			return true
		}
	}
	return false
}

// foreign says whether another vendor made the entry.
func (v *view) foreign(e *entry) bool { return e.turn.Origin.Vendor != v.Target.Vendor }

func (v *view) stateOfTurn(e *entry, p part) State {
	switch {
	case p.key == "":
		return NoThinking
	case v.rejected(p.key):
		return Refused
	case v.foreign(e):
		return Foreign
	}
	return Proven
}

// state judges one block of a message that shows the turn e, or none.
func (v *view) state(m *message, at int, e *entry, edited bool) State {
	p := m.form.parts[at]
	if p.key == "" {
		return NoThinking
	}
	if v.rejected(p.key) {
		return Refused
	}
	if e == nil && m.strange() {
		return Unknown // though another turn thought the same
	}
	maker, foreign := v.maker(m, p)
	if e == nil && maker != nil && maker.turn.Cut {
		e = maker // the only turn that a block can stand in though the message does not show it
	}
	switch {
	case e != nil && v.stands(m.form, p, at, e):
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

// stands says whether a block is in the turn e what it is in the message.
func (v *view) stands(f *Form, p part, at int, e *entry) bool {
	if e.turn.Dialect != v.Dialect {
		// Blocks of two dialects can only be compared by their text.
		return p.from < p.to && !slices.ContainsFunc(f.keysOf(p), func(k key) bool {
			return k.kind != byThought || !slices.Contains(e.form.thoughts, k.sum)
		})
	}
	return at < len(e.form.parts) && e.form.parts[at].key == p.key
}

// maker is the entry that a block comes from, by its own keys; nil if none or
// more than one is known. Foreign says that whoever made it is another vendor.
func (v *view) maker(m *message, p part) (e *entry, foreign bool) {
	for _, hits := range m.hits[p.from:p.to] {
		if len(hits) == 0 {
			continue
		}
		if !slices.ContainsFunc(hits, func(e *entry) bool { return !v.foreign(e) }) {
			return nil, true
		}
		if one := only(hits); one != nil {
			return one, false
		}
	}
	return nil, false
}

// only is the one turn of a list, a whole one before one that broke off; nil if
// there are more.
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

package ledger

import "slices"

// turnOf finds the turn that a message shows outside of the tree of its conversation: by what only
// one answer can have given, a signature, redacted data or a long tool id. What is said alone proves
// nothing: two turns may say "yes". It is nil if several could be meant. edited says that a key of
// the message belongs to a known turn that the message does not show.
func (v *view) turnOf(m *shownMessage) (turn *entry, edited bool) {
	if m.strange() {
		return nil, false
	}
	var candidates, matches []*entry // complete turns; those of them that the message shows
	for i, k := range m.form.keys[:m.form.visibleStart] {
		one := only(m.hits[i])
		if !k.unique() || one == nil || one.turn.Cut || slices.Contains(candidates, one) {
			continue
		}
		candidates = append(candidates, one)
		if one.form.Shows(m.form) {
			matches = append(matches, one)
		}
	}
	if len(matches) == 1 {
		return matches[0], false
	}
	return nil, len(candidates) > 0 && len(matches) == 0
}

// strange reports whether a message has both signed thinking and tool ids that cannot recur, and
// none of them is known. Then it is another turn, even if its thinking and its words are those of a
// known one.
func (m *shownMessage) strange() bool {
	sealed, hasToolID := false, false
	for i, k := range m.form.keys[:m.form.visibleStart] {
		if !k.unique() {
			continue
		}
		if len(m.hits[i]) > 0 {
			return false
		}
		sealed = sealed || k.opaque()
		hasToolID = hasToolID || !k.opaque()
	}
	return sealed && hasToolID
}

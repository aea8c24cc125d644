package thinking

import (
	"fmt"
	"strings"

	"mneme/proxy/ledger"
)

// Report says what Filter or PutBack did. It counts thinking blocks as the client showed them,
// where the reasoning members of a chat message count as one; PutBack counts messages.
type Report struct {
	Unchanged int // sent as the client showed them
	PutBack   int // messages that were replaced by their stored turn
	IntoText  int
	Stripped  int // taken out for another attempt

	// The removed blocks, by reason.
	Refused   int // the backend rejected them before
	Foreign   int // another vendor produced them
	Edited    int // the user changed what the model said there
	Unproven  int // the ledger does not know them
	Unchained int // they are not on the chain
}

// Removed is how many blocks were removed.
func (r Report) Removed() int {
	return r.Refused + r.Foreign + r.Edited + r.Unproven + r.Unchained
}

// Changed reports whether any thinking is not as the client showed it.
func (r Report) Changed() bool { return r.PutBack+r.IntoText+r.Removed() > 0 }

// String is the report as one line of the log.
func (r Report) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "[thinking_filter] kept=%d put_back=%d into_text=%d removed=%d", r.Unchanged, r.PutBack, r.IntoText,
		r.Removed())
	for _, cause := range []struct {
		name string
		n    int
	}{
		{"refused", r.Refused}, {"foreign", r.Foreign}, {"edited", r.Edited}, {"unproven", r.Unproven},
		{"unchained", r.Unchained},
	} {
		if cause.n > 0 {
			fmt.Fprintf(&s, " %s=%d", cause.name, cause.n)
		}
	}
	return s.String()
}

// count adds a step on a message with this many thinking blocks.
func (r *Report) count(s step, blocks int) {
	switch s.do {
	case leave:
		r.Unchanged += blocks
	case putBack:
		r.PutBack++
	case intoText:
		r.IntoText += blocks
	case remove:
		switch s.why {
		case ledger.Refused:
			r.Refused += blocks
		case ledger.Foreign:
			r.Foreign += blocks
		case ledger.Altered:
			r.Edited += blocks
		case ledger.Unknown:
			r.Unproven += blocks
		default:
			r.Unchained += blocks
		}
	}
}

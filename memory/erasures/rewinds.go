package erasures

import (
	"strings"

	"mneme/memory"
)

// Prefixes of names that tell of rewinds.
const (
	rewound  = "rewound:"
	restored = "restored:"
)

// Rewound is the name under which it is recorded that a rewind took back what a run said. The turn is
// that of the rewind: what the run wrote in an earlier one stays away.
func Rewound(chat memory.Chat, run string) string { return rewound + run + " " + Chat(chat) }

// RewoundOf parses a name that Rewound made; ok is false for a name of another kind.
func RewoundOf(name string) (chat memory.Chat, run string, ok bool) {
	rest, isRewind := strings.CutPrefix(name, rewound)
	run, scope, parted := strings.Cut(rest, " ")
	chat, key, valid := ChatOf(scope)
	return chat, run, isRewind && parted && valid && key == nil
}

// Restored is the name under which it is recorded that what a rewind took back was put back.
func Restored(chat memory.Chat, rewind string) string { return restored + rewind + " " + Chat(chat) }

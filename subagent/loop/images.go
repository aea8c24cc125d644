package loop

import (
	"slices"

	"mneme/memory"
)

// Images are what a model sees beside the text of a user's message. Each is an https address or a
// data: URL. No later request has them: what stays is in the text, see memory.WithImages.
type Images struct {
	Own []string `json:"own,omitempty"` // of the message
	// Previous are those of messages before it, the oldest first. A model that takes none does without
	// them, while it cannot answer a message with images of its own.
	Previous []string `json:"before,omitempty"`
	Missing  int      `json:"lost,omitempty"` // how many of Own are not here any more
}

// withoutData are the images that go on with a run after it waited: only addresses, since bytes of images
// are never stored.
func (i Images) withoutData() Images {
	addresses := slices.DeleteFunc(slices.Clone(i.Own), memory.IsImageData)
	return Images{Own: addresses, Missing: i.Missing + len(i.Own) - len(addresses)}
}

// imageTokens is what one counts for, whatever its size.
const imageTokens = 1500

func (i Images) tokens() int { return imageTokens * (len(i.Own) + len(i.Previous)) }

package api

import (
	"errors"
	"fmt"
	"slices"

	"mneme/memory"
)

// This file is about what a message may come with beside its text.

// MaxInstructions bounds RunRequest.Instructions, in bytes.
const MaxInstructions = 64 << 10

// Bounds of metadata, of a chat or of a message.
const (
	MaxMetadata      = 16  // pairs
	MaxMetadataName  = 64  // bytes
	MaxMetadataValue = 512 // bytes
)

// Names in a message's metadata by which a client of chat completions finds it again. They do not count among
// MaxMetadata: they come beside what the client itself says.
const (
	MessageIDMember  = "message_id"      // what the client calls the message
	AnswerIDMember   = "answer_id"       // and the answer to it
	TranscriptMember = "transcript_from" // the client that sent it with the messages before it, by a hash
)

// CheckInstructions says what is wrong with instructions, as a *Problem.
func CheckInstructions(text string) error {
	if len(text) > MaxInstructions {
		return tooLarge(fmt.Sprintf("instructions has %d bytes, at most %d are taken.", len(text), MaxInstructions))
	}
	return nil
}

// CheckMetadata says what is wrong with metadata, as a *Problem.
func CheckMetadata(pairs map[string]string) error {
	bad := func(format string, args ...any) error { return badRequest(fmt.Sprintf(format, args...)) }
	count := len(pairs)
	for _, own := range []string{MessageIDMember, AnswerIDMember, TranscriptMember} {
		if _, there := pairs[own]; there {
			count--
		}
	}
	if count > MaxMetadata {
		return bad("metadata has %d pairs, at most %d are taken.", count, MaxMetadata)
	}
	for name, value := range pairs {
		if name == "" || len(name) > MaxMetadataName {
			return bad("A name in metadata has 1 to %d bytes, not %d.", MaxMetadataName, len(name))
		}
		if len(value) > MaxMetadataValue {
			return bad("The value of %s in metadata has %d bytes, at most %d are taken.", name, len(value), MaxMetadataValue)
		}
	}
	return nil
}

// CheckImages says what is wrong with the images of a message and with those of the user's messages before it, as a
// *Problem. Each is a data: URL in base64, of PNG, JPEG, GIF or WebP, or an https address; memory.MaxImages,
// memory.MaxImage and memory.MaxAllImages bound them together. It gives the references of the message's own.
func CheckImages(own, before []string) ([]memory.Image, error) {
	all, err := memory.ReadImages(slices.Concat(own, before))
	switch {
	case errors.Is(err, memory.ErrImagesTooLarge):
		return nil, tooLarge(fmt.Sprintf("Of the images %v.", err))
	case err != nil:
		return nil, badRequest(fmt.Sprintf("Of the images %v.", err))
	}
	return all[:len(own):len(own)], nil
}

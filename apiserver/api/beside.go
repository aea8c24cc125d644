package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"
	_ "time/tzdata" // zones do not depend on the machine's files

	"mneme/memory"
)

// MaxInstructions bounds RunRequest.Instructions, in bytes.
const MaxInstructions = 64 << 10

// Bounds of metadata, of a chat or of a message.
const (
	maxMetadata      = 16  // pairs
	maxMetadataName  = 64  // bytes
	maxMetadataValue = 512 // bytes
)

// Members of a message's metadata that the OpenAI routes add. They do not count towards maxMetadata.
const (
	MessageIDMember = "message_id"          // the client's id of the message
	AnswerIDMember  = "answer_id"           // the client's id of the answer
	ClientMember    = "transcript_from"     // a hash that identifies the client
	DivergedMember  = "transcript_diverged" // "true": the client's transcript did not end where the chat did
)

// OwnMembers are the names of the members that are not the client's.
var OwnMembers = []string{MessageIDMember, AnswerIDMember, ClientMember, DivergedMember}

// CheckInstructions says what is wrong with instructions, which a member of the body holds, as a *Problem.
func CheckInstructions(member, text string) error {
	if len(text) > MaxInstructions {
		return tooLarge(fmt.Sprintf("%s has %d bytes, at most %d are taken.", member, len(text), MaxInstructions))
	}
	return nil
}

// Wishes are what a client asks of the calls of the master's model. Subagents are asked nothing of it.
type Wishes struct {
	// ResponseFormat is the form of the answer as chat completions have it: of the type json_object or json_schema. At
	// most 64 KiB.
	ResponseFormat json.RawMessage `json:"response_format,omitempty"`
	// ToolChoice is what the first call has to call: the name of one of the client's tools, or AnyTool for any of them.
	ToolChoice string `json:"tool_choice,omitempty"`
}

// AnyTool is the ToolChoice of any of the client's tools.
const AnyTool = "required"

const maxFormat = 64 << 10 // bytes of Wishes.ResponseFormat

// CheckWishes says what is wrong with wishes beside the client's tools, as a *Problem.
func CheckWishes(w Wishes, tools []ClientTool) error {
	if w.ToolChoice != "" && !slices.ContainsFunc(tools, func(t ClientTool) bool {
		return w.ToolChoice == AnyTool || w.ToolChoice == t.Name
	}) {
		return badRequest(fmt.Sprintf("tool_choice is %q or the name of one of tools, not %.80q.", AnyTool, w.ToolChoice))
	}
	if len(w.ResponseFormat) == 0 {
		return nil
	}
	if len(w.ResponseFormat) > maxFormat {
		return tooLarge(fmt.Sprintf("response_format has %d bytes, at most %d are taken.", len(w.ResponseFormat), maxFormat))
	}
	var form struct {
		Type       string `json:"type"`
		JSONSchema struct {
			Schema map[string]json.RawMessage `json:"schema"`
		} `json:"json_schema"`
	}
	if json.Unmarshal(w.ResponseFormat, &form) != nil || form.Type != "json_object" && form.JSONSchema.Schema == nil ||
		form.Type != "json_object" && form.Type != "json_schema" {
		return badRequest("response_format is of the type json_object, or of the type json_schema with an object as " +
			"json_schema.schema.")
	}
	return nil
}

// CheckMetadata says what is wrong with metadata, as a *Problem.
func CheckMetadata(pairs map[string]string) error {
	bad := func(format string, args ...any) error { return badRequest(fmt.Sprintf(format, args...)) }
	count := len(pairs)
	for _, own := range OwnMembers {
		if _, ok := pairs[own]; ok {
			count--
		}
	}
	if count > maxMetadata {
		return bad("metadata has %d pairs, at most %d are taken.", count, maxMetadata)
	}
	for name, value := range pairs {
		if name == "" || len(name) > maxMetadataName {
			return bad("A name in metadata has 1 to %d bytes, not %d.", maxMetadataName, len(name))
		}
		if len(value) > maxMetadataValue {
			return bad("The value of %s in metadata has %d bytes, at most %d are taken.", name, len(value), maxMetadataValue)
		}
	}
	return nil
}

// CheckImages says what is wrong with the images of a message and with those of the user's messages before it, as a
// *Problem. Each is a data: URL in base64, of PNG, JPEG, GIF or WebP, or an https address; memory.MaxImages,
// memory.MaxImage and memory.MaxAllImages bound them together. It gives the references of the message's own.
func CheckImages(own, previous []string) ([]memory.Image, error) {
	images, err := memory.ReadImages(slices.Concat(own, previous))
	switch {
	case errors.Is(err, memory.ErrImagesTooLarge):
		return nil, tooLarge(fmt.Sprintf("Of the images %v.", err))
	case err != nil:
		return nil, badRequest(fmt.Sprintf("Of the images %v.", err))
	}
	return images[:len(own):len(own)], nil
}

// zoneName matches names of the IANA database. It excludes other files beside the machine's zones, such as localtime
// and right/UTC: another replica may lack them or read something else.
var zoneName = regexp.MustCompile(`^[A-Z][A-Za-z0-9+_-]*(?:/[A-Z][A-Za-z0-9+_-]*)*$`)

// ReadZone returns the time zone of a member or parameter time_zone; nil if it is empty. The error is a *Problem.
func ReadZone(name string) (*time.Location, error) {
	if name == "" {
		return nil, nil
	}
	if zoneName.MatchString(name) && name != "Local" {
		if zone, err := time.LoadLocation(name); err == nil {
			return zone, nil
		}
	}
	return nil, badRequest(fmt.Sprintf("time_zone must be an IANA name such as Europe/Berlin, not %.80q.", name))
}

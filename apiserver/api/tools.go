package api

import (
	"encoding/json"
	"fmt"
	"regexp"

	"github.com/google/jsonschema-go/jsonschema"

	"mneme/access/jsonbound"
	"mneme/memory/event"
)

// Bounds of a client's tools.
const (
	maxTools      = 40
	maxParameters = 64 << 10 // bytes of one schema
	maxToolText   = 4 << 10  // bytes of one description
	maxNesting    = 64       // of one schema: the validator reads what is nested once for each level above it
	// maxToolCost bounds the sum of parts × nesting of all schemas: one of them takes the validator about 1 µs.
	maxToolCost = 300_000
)

var toolName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// ValidateTools says what is wrong with the tools of a client, as a *Problem.
func ValidateTools(tools []ClientTool) error {
	if len(tools) > maxTools {
		return badRequest(fmt.Sprintf("tools has %d entries, at most %d are taken.", len(tools), maxTools))
	}
	names, cost := map[string]bool{}, 0
	for i, t := range tools {
		switch {
		case !toolName.MatchString(t.Name):
			return badRequest(fmt.Sprintf("tools[%d].name must be 1 to 64 characters of A-Z a-z 0-9 _ -.", i))
		case names[t.Name]:
			return badRequest(fmt.Sprintf("tools has %q twice.", t.Name))
		case len(t.Description) > maxToolText, len(t.Parameters) > maxParameters:
			return tooLarge(fmt.Sprintf("The tool %q is too large: a description has at most %d bytes, its parameters %d.",
				t.Name, maxToolText, maxParameters))
		}
		names[t.Name] = true
		deep, parts := jsonbound.Count(t.Parameters, maxNesting, maxToolCost)
		if cost += deep * parts; deep > maxNesting || cost > maxToolCost {
			return badRequest(fmt.Sprintf("The parameters of the tool %q are nested more than %d deep, or the tools have too "+
				"many parts for how deep they are nested: send fewer tools, or flatter schemas.", t.Name, maxNesting))
		}
		if err := validSchema(t.Parameters); err != nil {
			return badRequest(fmt.Sprintf("The parameters of the tool %q must be a JSON schema of an object: %v.", t.Name, err))
		}
	}
	return nil
}

// validSchema says why something is no JSON schema of an object.
func validSchema(raw json.RawMessage) error {
	if len(raw) == 0 {
		return fmt.Errorf("they are missing")
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	if s.Type != "object" {
		return fmt.Errorf(`their "type" is not "object"`)
	}
	_, err := s.Resolve(nil)
	return err
}

// validate says what is wrong with what a run is to go on from, as a *Problem; what only the
// agents can tell it leaves to them.
func (r *Resume) validate() error {
	if len(r.Events) == 0 || len(r.State) == 0 || string(r.State) == "null" {
		return badRequest("resume needs the events of the run and its state.")
	}
	answered := map[string]bool{}
	for i, a := range r.Answers {
		switch {
		case a.ID == "":
			return badRequest(fmt.Sprintf("resume.answers[%d] has no id.", i))
		case answered[a.ID]:
			return badRequest(fmt.Sprintf("resume.answers has two for %q.", a.ID))
		case a.Decision != event.Approve && a.Decision != event.Deny && a.Decision != event.Edit:
			return badRequest(fmt.Sprintf("resume.answers[%d].decision must be %q, %q or %q.", i, event.Approve, event.Deny,
				event.Edit))
		}
		answered[a.ID] = true
	}
	return nil
}

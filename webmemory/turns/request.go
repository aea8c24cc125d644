package turns

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"

	"mneme/apiserver/api"
	"mneme/memory"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/problem"
)

// This file is about what a post says beside its message: the client's own tools, the user
// that the message is of, instructions and metadata.

// Bounds of what a post says beside its message.
const (
	maxToolBytes = 256 << 10 // of all tools
	maxUser      = 255       // bytes
)

// checkBeside validates what a post has beside its message.
func checkBeside(p *webapi.MessageRequest) error {
	if len(p.User) > maxUser {
		return problem.BadRequest("user has %d bytes, at most %d are taken.", len(p.User), maxUser)
	}
	if _, err := api.ReadZone(p.TimeZone); err != nil {
		return err
	}
	if err := api.CheckInstructions("instructions", p.Instructions); err != nil {
		return err
	}
	if err := memory.CheckSpans(p.Message, p.Pasted); err != nil {
		return problem.BadRequest("pasted %v.", err)
	}
	if err := api.CheckMetadata(p.Metadata); err != nil {
		return err
	}
	if _, err := checkContext(p.Context); err != nil {
		return err
	}
	if err := api.CheckWishes(p.Wishes, p.Tools); err != nil {
		return err
	}
	if len(p.Tools) == 0 && len(p.ResponseFormat) == 0 {
		return nil
	}
	if p.AgentVersion != "" && p.AgentVersion != webapi.Master {
		return problem.BadRequest("tools and response_format go with the master, not with agent_version %.80q.",
			p.AgentVersion)
	}
	size := 0
	for _, t := range p.Tools {
		size += len(t.Name) + len(t.Description) + len(t.Parameters)
	}
	if size > maxToolBytes {
		return &api.Problem{Status: http.StatusRequestEntityTooLarge, Code: webapi.CodeTooLarge,
			Message: fmt.Sprintf("The tools have %d bytes, at most %d are taken.", size, maxToolBytes)}
	}
	return api.ValidateTools(p.Tools)
}

// hashedBeside returns what the hash of a post covers beside its message, "" if the post has nothing of it. A retry may
// have other members of mneme's own in its metadata.
func hashedBeside(p webapi.MessageRequest) string {
	p.Metadata = maps.Clone(p.Metadata)
	for _, own := range []string{api.ClientMember, api.DivergedMember} {
		delete(p.Metadata, own)
	}
	if p.User == "" && len(p.Tools) == 0 && p.Instructions == "" && len(p.Metadata) == 0 && len(p.ResponseFormat) == 0 &&
		p.Pasted == nil {
		return ""
	}
	raw, err := json.Marshal(struct {
		User         string
		Tools        []webapi.ClientTool
		Instructions string            `json:",omitempty"`
		Metadata     map[string]string `json:",omitempty"`
		Pasted       []memory.Span     `json:",omitzero"`
		api.Wishes
	}{p.User, p.Tools, p.Instructions, p.Metadata, p.Pasted, p.Wishes})
	if err != nil {
		return p.User // of parameters that are no JSON, which checkBeside has refused
	}
	return "\x00" + string(raw)
}

// hashedImages is what the hash of a post covers of its images; empty for none, as in posts of before.
func hashedImages(images []memory.Image) string {
	if len(images) == 0 {
		return ""
	}
	raw, _ := json.Marshal(images) // plain structs of text and numbers
	return "\x00images\x00" + string(raw)
}

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

// Limits on the fields of a post other than its message.
const (
	maxToolBytes = 256 << 10 // of all tools together
	maxUser      = 255       // bytes
)

// checkBeside validates the fields of a post other than its message, such as tools, user and metadata.
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

// hashedBeside returns what the hash of a post covers apart from its message, or "" if the post has no such fields. It
// excludes mneme's own members of the metadata, which may differ in a retry.
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
		return p.User // for parameters that are invalid JSON, which checkBeside rejects
	}
	return "\x00" + string(raw)
}

// hashedImages returns what the hash of a post covers of its images. Without images it is empty, as in posts of older
// versions.
func hashedImages(images []memory.Image) string {
	if len(images) == 0 {
		return ""
	}
	raw, _ := json.Marshal(images) // plain structs of strings and numbers always encode
	return "\x00images\x00" + string(raw)
}

package upstreamtest

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Roles of the chat dialect beside those of the messages dialect.
const (
	developer = "developer"
	tool      = "tool"
)

// maxCallID is the longest id of a call that OpenAI takes.
const maxCallID = 40

// ValidateChat checks a request of the chat-completions dialect. The error is
// what a vendor would answer with status 400.
func ValidateChat(body []byte) error {
	r, err := read(body)
	if err != nil {
		return err
	}
	return checkChat(r, &dialogue{ordered: true, maxID: maxCallID})
}

// checkChat holds a request to the rules that d, which is still empty, stands for.
func checkChat(r members, d *dialogue) error {
	if model, ok := r.text("model"); !ok || model == "" {
		return errors.New("you must provide a model parameter")
	}
	if err := checkFunctions(r); err != nil {
		return err
	}
	messages, ok := r.list("messages")
	if !ok || len(messages) == 0 {
		return errors.New("Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty " +
			"array instead.")
	}
	for i, m := range messages {
		if err := d.next(m, fmt.Sprintf("messages[%d]", i)); err != nil {
			return err
		}
	}
	if d.ordered && d.before != user && d.before != tool {
		return fmt.Errorf("Expected last role User or Tool (or Assistant with prefix True) for serving but got %s", d.before)
	}
	return d.settled()
}

func checkFunctions(r members) error {
	if !r.has("tools") {
		return nil
	}
	tools, ok := r.list("tools")
	if !ok || len(tools) == 0 {
		return errors.New("Invalid 'tools': expected an array with minimum length 1.")
	}
	seen := map[string]bool{}
	for i, t := range tools {
		f, ok := t.object("function")
		name, _ := f.text("name")
		switch {
		case !ok || t.kind() != "function":
			return fmt.Errorf("Invalid 'tools[%d]': expected an object of type 'function'.", i)
		case !legalName.MatchString(name):
			return badName(fmt.Sprintf("tools[%d].function.name", i))
		case seen[name]:
			return errors.New("Tool names must be unique")
		}
		seen[name] = true
		if schema, ok := f.object("parameters"); f.has("parameters") && (!ok || schema.kind() != "object") {
			return fmt.Errorf("Invalid schema for function '%s': schema must be a JSON Schema of 'type: \"object\"'.", name)
		}
	}
	return nil
}

func badName(at string) error {
	return fmt.Errorf("Invalid '%s': string does not match pattern. Expected a string that matches the pattern '%s'.", at,
		legalName)
}

// dialogue is what has been said so far, and by which rules.
type dialogue struct {
	ordered   bool           // roles follow each other as Mistral wants it
	maxID     int            // longest id of a call; 0 is any
	callID    *regexp.Regexp // what an id of a call looks like; nil is any
	recurring bool           // an id may come again in a later answer

	before string // role of the message before, system and developer as system
	begun  bool   // something but a system prompt has been said
	open   []string
	used   map[string]bool
}

// next checks one message; at is where it stands.
func (d *dialogue) next(m members, at string) error {
	role, _ := m.text("role")
	if role == developer {
		role = system
	}
	if role != tool {
		if err := d.settled(); err != nil {
			return err
		}
	}
	var err error
	switch role {
	case system, user:
		err = d.prompt(m, role, at)
	case assistant:
		err = d.answer(m, at)
	case tool:
		err = d.result(m, at)
	default:
		err = fmt.Errorf("Invalid value: '%s'. Supported values are: 'system', 'developer', 'user', 'assistant' and "+
			"'tool' (%s.role).", role, at)
	}
	d.before, d.begun = role, d.begun || role != system
	return err
}

func (d *dialogue) prompt(m members, role, at string) error {
	switch {
	case !d.ordered:
	case role == system && (d.before == assistant || d.before == tool),
		// A user may not speak into an exchange with a tool, nor twice.
		role == user && (d.before == tool || d.before == user):
		return fmt.Errorf("Unexpected role '%s' after role '%s'", role, d.before)
	}
	kinds := []string{textBlock}
	if role == user {
		kinds = append(kinds, imagePart, "input_audio", "file")
	}
	return checkParts(m, at, kinds...)
}

func (d *dialogue) answer(m members, at string) error {
	if d.ordered && !d.begun {
		return errors.New("Conversation must start with a user message or system message, and the first to speak is the user")
	}
	if m.has("tool_calls") {
		calls, ok := m.list("tool_calls")
		if !ok || len(calls) == 0 {
			return fmt.Errorf("[] is too short - '%s.tool_calls'", at)
		}
		for j, c := range calls {
			if err := d.call(c, fmt.Sprintf("%s.tool_calls[%d]", at, j)); err != nil {
				return err
			}
		}
		if s, ok := m.text("content"); !m.has("content") || ok && s == "" {
			return nil
		}
	}
	return checkParts(m, at, textBlock, "refusal")
}

func (d *dialogue) call(c members, at string) error {
	id, _ := c.text("id")
	f, ok := c.object("function")
	name, _ := f.text("name")
	arguments, _ := f.text("arguments")
	switch {
	case !ok || c.kind() != "function":
		return fmt.Errorf("Invalid '%s': expected an object of type 'function'.", at)
	case id == "":
		return fmt.Errorf("Invalid '%s.id': empty string. Expected a string with minimum length 1, but got an empty "+
			"string instead.", at)
	case d.callID != nil && !d.callID.MatchString(id):
		return fmt.Errorf("Tool call id was %s but must be a-z, A-Z, 0-9, with a length of 9.", id)
	case d.maxID > 0 && len(id) > d.maxID:
		return fmt.Errorf("Invalid '%s.id': string too long. Expected a string with maximum length %d, but got a string "+
			"with length %d instead.", at, d.maxID, len(id))
	case d.used[id] && !d.recurring, slices.Contains(d.open, id):
		return fmt.Errorf("Invalid '%s.id': duplicate tool call id %s", at, id)
	case !legalName.MatchString(name):
		return badName(at + ".function.name")
	case !isObject(arguments):
		return fmt.Errorf("Invalid '%s.function.arguments': expected the text of a JSON object, but got %.60q instead.", at,
			arguments)
	}
	if d.used == nil {
		d.used = map[string]bool{}
	}
	d.used[id] = true
	d.open = append(d.open, id)
	return nil
}

func isObject(s string) bool {
	v := jsontext.Value(s)
	return v.Kind() == '{' && v.IsValid(lenient)
}

func (d *dialogue) result(m members, at string) error {
	id, _ := m.text("tool_call_id")
	i := slices.Index(d.open, id)
	switch {
	case d.before != assistant && d.before != tool, i < 0 && !d.used[id]:
		return fmt.Errorf("Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "+
			"'tool_calls' (%s, id %s).", at, id)
	case i < 0:
		return fmt.Errorf("Not the same number of function calls and responses (%s answers id %s again)", at, id)
	}
	d.open = slices.Delete(d.open, i, i+1)
	return checkParts(m, at, textBlock)
}

// settled holds if every call of the last answer has its result.
func (d *dialogue) settled() error {
	if len(d.open) == 0 {
		return nil
	}
	return fmt.Errorf("An assistant message with 'tool_calls' must be followed by tool messages responding to each "+
		"'tool_call_id'. "+
		"The following tool_call_ids did not have response messages: %s", strings.Join(d.open, ", "))
}

// checkParts wants content that says something: a string, or parts of these kinds.
func checkParts(m members, at string, kinds ...string) error {
	if s, ok := m.text("content"); ok {
		if blank(s) {
			return fmt.Errorf("Invalid '%s.content': text content must be non-empty", at)
		}
		return nil
	}
	parts, ok := m.list("content")
	if !ok || len(parts) == 0 {
		return fmt.Errorf("Invalid value for '%s.content': expected a string or an array of content parts.", at)
	}
	for j, p := range parts {
		kind := p.kind()
		s, _ := p.text(kind)
		switch {
		case !slices.Contains(kinds, kind):
			return fmt.Errorf("Invalid value: '%s' is no type of content part here (%s.content[%d]).", kind, at, j)
		case (kind == textBlock || kind == "refusal") && blank(s):
			return fmt.Errorf("Invalid '%s.content[%d].%s': text content must be non-empty", at, j, kind)
		case kind == imagePart:
			if err := checkImagePart(p, fmt.Sprintf("%s.content[%d]", at, j)); err != nil {
				return err
			}
		}
	}
	return nil
}

package proxy

import (
	"cmp"
	"slices"
	"strings"

	"mneme/proxy/chatwire"
	"mneme/proxy/responseswire"
	"mneme/proxy/sanitize"
	"mneme/proxy/wire"
)

// translate puts the request into the backend's dialect.
func (x scopedRequest) translate() (a adaptedRequest, err error) {
	a = adaptedRequest{scopedRequest: x}
	a.answerOptions.Stream, a.answerOptions.IncludeUsage = x.outline.Stream, sanitize.AsksUsage(x.outline)
	if x.model != x.outline.Model {
		a.answerOptions.Model = x.outline.Model
	}
	if x.endpoint.dialect == x.backend.speaks && x.modelInfo.profile.Vendor != "anthropic" {
		if err := chatwire.NoThread(x.outline.Raw(x.outline.Members.Get("thread"))); err != nil {
			return a, err
		}
	}
	if !x.translated() {
		return a, a.takesNewest(x.outline, x.sees(), allBlocks)
	}
	t, err := a.translation()
	if err != nil {
		return a, err
	}
	a.replaced = t.Replaced
	a.answerOptions.IncludeUsage, a.answerOptions.AnswerTool, a.answerOptions.Custom = t.IncludeUsage, t.AnswerTool,
		t.Custom
	a.ignore(t)
	if a.ephemeral, err = x.ephemeral.translated(x); err != nil {
		return a, err
	}
	if a.outline, err = wire.ReadOutline(t.Body); err != nil {
		return a, err
	}
	if a.native != nil {
		a.native.Translation = a.outline.WithModel(a.model).Body
	}
	if x.backend.dialect == wire.Messages {
		err = a.takesNewest(a.outline, x.sees(), t.Newest)
	}
	return a, err
}

// asChat translates a request of the messages dialect whose last blocks are the user's very last message.
func (x *adaptedRequest) asChat(o *wire.Outline, newest int,
	options chatwire.Options) (t chatwire.Translated, err error) {
	p := x.sees()
	if p.Carried == nil {
		p.Carried = chatwire.ChatCarries(options.Files)
	}
	if err := x.takesNewest(o, p, newest); err != nil {
		return t, err
	}
	out := sanitize.Carry(o, p)
	t, err = chatwire.ChatRequest(out.Body, options)
	t.Replaced = t.Replaced || slices.ContainsFunc(out.Changes, func(c sanitize.Change) bool {
		return c.Kind == sanitize.KindContent
	})
	return t, err
}

// ignore notes the members that a translation has no place for.
func (x *adaptedRequest) ignore(t chatwire.Translated) {
	if len(t.Ignored) == 0 {
		return
	}
	x.leftOut = slices.Concat(x.leftOut, t.Ignored)
	x.log().Info().Strs("parameters", t.Ignored).Str("backend",
		x.backend.name).Msg("parameters ignored: the backend has none like them")
}

// translation is the request in the backend's dialect. One of Responses to a chat backend passes through messages.
func (x *adaptedRequest) translation() (chatwire.Translated, error) {
	o := x.options()
	switch {
	case x.endpoint.dialect == wire.Responses:
		var err error
		if o.Native = !x.foreign(); o.Native {
			if x.outline, err = x.outline.WithBody(responseswire.Replayable(x.outline)); err != nil {
				return chatwire.Translated{}, err
			}
		}
		t, err := responseswire.MessagesRequest(x.outline.Body, o)
		if err != nil {
			return t.Translated, err
		}
		if err := unserved(t); err != nil {
			return t.Translated, err
		}
		x.responses = t.Options
		x.responses.Model = x.answerOptions.Model
		switch {
		case o.Native:
			x.native = &responseswire.Native{Body: x.own(t.Previous), Items: t.Items, Lead: t.Lead,
				Names: t.Options.Names}
			x.previous = t.Previous
		case x.stored != nil:
			x.responses.ID, x.responses.Stored = x.stored.ID, true
		}
		if x.backend.dialect == wire.Messages {
			return t.Translated, nil
		}
		o.Effort = cmp.Or(t.Effort, o.Effort)
		outline, err := wire.ReadOutline(t.Body)
		if err != nil {
			return t.Translated, err
		}
		chat, err := x.asChat(outline, t.Newest, o)
		chat.Replaced = chat.Replaced || t.Replaced
		if chat.Ignored = append(t.Ignored, chat.Ignored...); err == nil {
			x.passShared(&chat)
		}
		return chat, err
	case x.backend.dialect == wire.Chat:
		return x.asChat(x.outline, allBlocks, o)
	}
	return chatwire.MessagesRequest(x.outline.Body, o)
}

// openAI is the vendor with chat completions that take more than others' do.
const openAI = "openai"

// passShared adds the members that Responses and chat completions have in common, though messages do not, to a request
// that is on its way from the one to the other. OpenAI takes metadata only with an answer that it stores.
func (x *adaptedRequest) passShared(chat *chatwire.Translated) {
	names := []string{"frequency_penalty", "presence_penalty"}
	if x.modelInfo.profile.Vendor == openAI {
		names = append(names, "prompt_cache_key", "safety_identifier", "service_tier")
	}
	for _, name := range names {
		value := x.outline.Raw(x.outline.Members.Get(name))
		if len(value) == 0 || value.Kind() == 'n' {
			continue
		}
		end := len(chat.Body) - len("}")
		chat.Body = slices.Concat(chat.Body[:end], []byte(","), wire.Quote(name), []byte(":"), value, []byte("}"))
		chat.Ignored = slices.DeleteFunc(chat.Ignored, func(s string) bool {
			return s == name || s == chatwire.UserID && name == "safety_identifier"
		})
	}
}

// own is the client's request for a vendor of its dialect, which knows none of the responses that are stored here:
// the input says what the previous ones did.
func (x *adaptedRequest) own(previous string) []byte {
	o := x.outline.WithModel(x.model)
	var e wire.Edits
	if previous != "" {
		e.RemoveMembers(o.Members, "previous_response_id")
	}
	return e.Apply(o.Body)
}

// unserved refuses what concerns other requests than this one.
func unserved(t responseswire.Translated) error {
	switch {
	case t.Conversation != "":
		return wire.Failure{Status: 501, Param: "conversation",
			Message: "conversation is not served yet: send the whole input"}
	case t.Background:
		return wire.Failure{Status: 501, Param: "background",
			Message: "background is not served yet: leave it out and wait for the answer"}
	}
	return nil
}

// effortHeader leaves the effort of a chat request to the gateway: with the value
// "auto" a model thinks at autoEffort if it is known to take that.
const effortHeader = "X-AG-Effort"

// autoEffort is the level that "auto" stands for.
const autoEffort = "medium"

// ownEffort is the effort of a request that leaves it to the gateway; empty for
// one that does not.
func (x routedRequest) ownEffort() string {
	if x.endpoint.dialect == wire.Chat && strings.EqualFold(x.in.header.Get(effortHeader), "auto") {
		return autoEffort
	}
	return ""
}

// options are what the other dialect must know of the backend's model. A model
// that wants a budget gets one only where one is configured.
func (x routedRequest) options() chatwire.Options {
	bound := x.backend.config.Thinking.BudgetTokens
	o := chatwire.Options{
		Intermediate: x.endpoint.dialect == wire.Responses && x.backend.dialect == wire.Chat ||
			x.backend.speaks != x.backend.dialect,
		Efforts:  x.backend.speaks != x.backend.dialect,
		Bounded:  x.result.answer > 0,
		Adaptive: x.modelInfo.profile.Thinking.Adapts(), Schemas: x.modelInfo.profile.Schemas,
		Files: x.modelInfo.profile.Vendor == openAI,
	}
	// Nothing of ours goes to an unknown model.
	profile := x.modelInfo.profile.Thinking
	if profile.Modes != nil || o.Efforts && slices.Contains(profile.Efforts, autoEffort) {
		o.Effort = x.ownEffort()
	}
	if o.Adaptive || bound > 0 {
		o.Budget = func(effort string) int64 { return sanitize.BudgetOf(bound, effort) }
	}
	return o
}

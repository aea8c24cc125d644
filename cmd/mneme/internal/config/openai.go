package config

import (
	"cmp"
	"net/textproto"
	"regexp"

	"mneme/webmemory/openaiapi"
)

// OpenAI is webmemory's endpoint of chat completions.
type OpenAI struct {
	Enabled bool `yaml:"enabled" env:"ENABLED"`
	// headers that name the chat, the first that is there
	ChatHeaders []string `yaml:"chat_headers" env:"CHAT_HEADERS"`
	// headers that name a message of the user, its answer, and what it follows
	MessageHeaders []string `yaml:"message_headers" env:"MESSAGE_HEADERS"`
	AnswerHeaders  []string `yaml:"answer_headers" env:"ANSWER_HEADERS"`
	ParentHeaders  []string `yaml:"parent_headers" env:"PARENT_HEADERS"`
	TaskHeaders    []string `yaml:"task_headers" env:"TASK_HEADERS"`   // that mark a task of the client's own
	Progress       string   `yaml:"progress" env:"PROGRESS"`           // reasoning or none
	OnDisconnect   string   `yaml:"on_disconnect" env:"ON_DISCONNECT"` // stop or continue
	OnMismatch     string   `yaml:"on_mismatch" env:"ON_MISMATCH"`     // transcript, conflict or fork
}

// Settings are those of the endpoint.
func (o OpenAI) Settings() openaiapi.Settings {
	return openaiapi.Settings{
		ChatHeaders: o.ChatHeaders, MessageHeaders: o.MessageHeaders, AnswerHeaders: o.AnswerHeaders,
		ParentHeaders: o.ParentHeaders, TaskHeaders: o.TaskHeaders,
		Progress: o.Progress, OnDisconnect: o.OnDisconnect, OnMismatch: o.OnMismatch,
	}
}

func defaultOpenAI() OpenAI {
	s := openaiapi.Defaults()
	return OpenAI{
		Enabled: true, ChatHeaders: s.ChatHeaders, MessageHeaders: s.MessageHeaders, AnswerHeaders: s.AnswerHeaders,
		ParentHeaders: s.ParentHeaders, TaskHeaders: s.TaskHeaders,
		Progress: s.Progress, OnDisconnect: s.OnDisconnect, OnMismatch: s.OnMismatch,
	}
}

var headerName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}$")

// header is the check of a name of a header that a client may use as it likes.
func header(key, name string) error {
	taken := textproto.CanonicalMIMEHeaderKey(name)
	return cmp.Or(
		when(!headerName.MatchString(name), key, "must be the name of a header, such as X-Chat-Id, not %q", name),
		when(taken == "Authorization" || taken == "Cookie" || taken == "Content-Type", key,
			"%s has a meaning of its own; take another header", taken),
	)
}

func (o OpenAI) validate() error {
	return cmp.Or(
		each("openai.chat_headers", o.ChatHeaders, header),
		each("openai.message_headers", o.MessageHeaders, header),
		each("openai.answer_headers", o.AnswerHeaders, header),
		each("openai.parent_headers", o.ParentHeaders, header),
		each("openai.task_headers", o.TaskHeaders, header),
		oneOf("openai.progress", o.Progress, openaiapi.Reasoning, openaiapi.None),
		oneOf("openai.on_disconnect", o.OnDisconnect, openaiapi.Stop, openaiapi.Continue),
		oneOf("openai.on_mismatch", o.OnMismatch, openaiapi.Transcript, openaiapi.Conflict, openaiapi.Fork),
	)
}

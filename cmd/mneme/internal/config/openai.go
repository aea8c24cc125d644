package config

import (
	"mneme/webmemory/openaiapi"
)

// OpenAI is webmemory's endpoint of chat completions.
type OpenAI struct {
	Enabled bool `yaml:"enabled"`
	// headers that name the chat, the first that is there
	ChatHeaders []string `yaml:"chat_headers" check:"dive,header"`
	// headers that name a message of the user, its answer, and what it follows
	MessageHeaders []string `yaml:"message_headers" check:"dive,header"`
	AnswerHeaders  []string `yaml:"answer_headers" check:"dive,header"`
	ParentHeaders  []string `yaml:"parent_headers" check:"dive,header"`
	// that mark a task of the client's own
	TaskHeaders  []string `yaml:"task_headers" check:"dive,header"`
	Progress     string   `yaml:"progress" check:"oneof=reasoning none"`
	OnDisconnect string   `yaml:"on_disconnect" check:"oneof=stop continue"`
	OnMismatch   string   `yaml:"on_mismatch" check:"oneof=append transcript"`
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

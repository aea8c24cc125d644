package config

// OpenAI is webmemory's endpoint of chat completions. Its fields are those of openaiapi.Settings.
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

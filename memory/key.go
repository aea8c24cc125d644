package memory

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// ErrBadName is wrapped by every refusal of a chat id or a subagent name.
var ErrBadName = errors.New("bad name")

// Chat names one chat: by its tenant and its id, 1–128 characters of A-Z a-z 0-9 . _ : @
// + = -. It is comparable. The zero value is no chat; others come from [Tenant.Chat], from
// ParseChat, or from JSON, which holds an id alone and makes a chat of the default tenant:
// no client names a tenant.
type Chat struct {
	tenant Tenant
	id     string
}

// IsZero says whether it is no chat.
func (c Chat) IsZero() bool { return c.id == "" }

// ID is the chat's id, as its client knows it.
func (c Chat) ID() string { return c.id }

// String is the chat as it stands in the keys and records of the store: the id, behind
// its tenant and a slash, which no id holds, if it has one.
func (c Chat) String() string { return c.tenant.prefix() + c.id }

// MarshalText is ID, for JSON.
func (c Chat) MarshalText() ([]byte, error) { return []byte(c.id), nil }

// Agent is the name of a subagent: 1–64 characters of a-z 0-9 _ -.
type Agent string

// ParseChat reads back what String wrote into the store. What a client says is an id, of
// which [Tenant.Chat] makes the chat.
func ParseChat(s string) (Chat, error) { return parseOf(s, "chat", Tenant.Chat) }

// parseOf reads an id behind a tenant and a slash, if it has one.
func parseOf[T any](s, what string, build func(Tenant, string) (T, error)) (zero T, err error) {
	name, id, prefixed := strings.Cut(s, "/")
	if !prefixed {
		return build(Tenant{}, s)
	}
	tenant, err := ParseTenant(name)
	if err != nil || tenant == (Tenant{}) {
		return zero, fmt.Errorf("%w: %s is no %s", ErrBadName, clip(s), what)
	}
	return build(tenant, id)
}

// MustChat is the default tenant's chat of an id that is known to be one; it panics otherwise.
func MustChat(id string) Chat {
	chat, err := Tenant{}.Chat(id)
	if err != nil {
		panic(err)
	}
	return chat
}

// UnmarshalJSON takes a string, or an integer by its literal digits; 1e3 and
// 1.0 name no chat, since two spellings of one number would be two chats.
func (c *Chat) UnmarshalJSON(b []byte) error {
	s := string(b)
	if len(b) > 0 && b[0] == '"' {
		if err := json.Unmarshal(b, &s); err != nil {
			return err
		}
	} else if digits := strings.TrimPrefix(s, "-"); digits == "" || s == "-0" ||
		!only(digits, func(c byte) bool { return c >= '0' && c <= '9' }) {
		return fmt.Errorf("%w: a chat id is a JSON string or an integer, not %s", ErrBadName, clip(s))
	}
	chat, err := Tenant{}.Chat(s)
	if err != nil {
		return err
	}
	*c = chat
	return nil
}

// ParseAgent checks a subagent's name.
func ParseAgent(s string) (Agent, error) {
	if len(s) == 0 || len(s) > 64 || !only(s, agentByte) {
		return "", fmt.Errorf("%w: a subagent's name is 1 to 64 characters of a-z 0-9 _ -, not %s", ErrBadName, clip(s))
	}
	return Agent(s), nil
}

// UnmarshalJSON takes a name, or "" for none.
func (a *Agent) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil || s == "" {
		*a = ""
		return err
	}
	agent, err := ParseAgent(s)
	*a = agent
	return err
}

func chatByte(c byte) bool {
	return agentByte(c) || c >= 'A' && c <= 'Z' || strings.IndexByte(".:@+=", c) >= 0
}

func agentByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}

func only(s string, ok func(byte) bool) bool {
	for i := range len(s) {
		if !ok(s[i]) {
			return false
		}
	}
	return true
}

// clip quotes foreign input for an error message without repeating all of it.
func clip(s string) string {
	if len(s) > 140 {
		s = s[:140] + "…"
	}
	return fmt.Sprintf("%q", s)
}

// Key names one history: a chat's own, or one subagent's in one chat. It is
// comparable; ChatKey, SubagentKey and ParseKey are the only ways to one.
type Key struct {
	chat  Chat
	agent Agent // empty for the chat's own history
}

// ChatKey is the history of a chat: what its user said and was answered.
func ChatKey(chat Chat) Key { return Key{chat: chat} }

// SubagentKey is the history of one subagent in one chat.
func SubagentKey(agent Agent, chat Chat) Key { return Key{chat: chat, agent: agent} }

// ParseKey reads the Redis key of a history back, as ParseRedisKey does; ok is false for
// any other key.
func ParseKey(s string) (key Key, ok bool) {
	k, _ := ParseRedisKey(s)
	return k.Key, k.Kind == KindHistory && k.DamagedAt == ""
}

// String is the Redis key of the history's JSON array.
func (k Key) String() string { return RedisKey{Kind: KindHistory, Key: k}.String() }

// Chat is the chat that the history belongs to.
func (k Key) Chat() Chat { return k.chat }

// Agent is the subagent that has the history, empty for the chat's own.
func (k Key) Agent() Agent { return k.agent }

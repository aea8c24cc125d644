package memory

import (
	"encoding/json"
	"fmt"
)

// Tenant names the owner of data: 1–32 characters of a-z 0-9 -. The zero value is the
// default tenant, of a service that serves one only; what is stored of it has no prefix.
// Others come from ParseTenant.
type Tenant struct{ name string }

// defaultTenant is what the default tenant is called where it needs a name.
const defaultTenant = "default"

// ParseTenant checks a tenant's name; "" and "default" are the default tenant. Errors are
// ErrBadName.
func ParseTenant(s string) (Tenant, error) {
	if s == "" || s == defaultTenant {
		return Tenant{}, nil
	}
	if len(s) > 32 || !only(s, func(c byte) bool { return agentByte(c) && c != '_' }) {
		return Tenant{}, fmt.Errorf("%w: a tenant is 1 to 32 characters of a-z 0-9 -, not %s", ErrBadName, clip(s))
	}
	return Tenant{name: s}, nil
}

// String is the tenant's name, "default" for the default one.
func (t Tenant) String() string {
	if t.name == "" {
		return defaultTenant
	}
	return t.name
}

// MarshalText is String.
func (t Tenant) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText is ParseTenant.
func (t *Tenant) UnmarshalText(b []byte) (err error) {
	*t, err = ParseTenant(string(b))
	return err
}

// prefix is what stands before the tenant's ids in the keys and records of the store.
func (t Tenant) prefix() string {
	if t.name == "" {
		return ""
	}
	return t.name + "/"
}

// Chat is the tenant's chat of an id, as it came in a path, in a body or on a command
// line. Errors are ErrBadName.
func (t Tenant) Chat(id string) (Chat, error) {
	if !isID(id) {
		return Chat{}, fmt.Errorf("%w: a chat id is 1 to 128 characters of A-Z a-z 0-9 . _ : @ + = -, not %s", ErrBadName,
			clip(id))
	}
	return Chat{t, id}, nil
}

// isID says whether a text may be the id of a chat or of a user.
func isID(s string) bool { return len(s) > 0 && len(s) <= 128 && only(s, chatByte) }

// StoredChat is a chat in JSON that no client reads or writes: as String says it, with its
// tenant.
type StoredChat struct{ Chat }

// MarshalText is String.
func (c StoredChat) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalJSON is ParseChat.
func (c *StoredChat) UnmarshalJSON(b []byte) (err error) {
	var s string
	if err = json.Unmarshal(b, &s); err == nil {
		c.Chat, err = ParseChat(s)
	}
	return err
}

// Tenant is the chat's tenant.
func (c Chat) Tenant() Tenant { return c.tenant }

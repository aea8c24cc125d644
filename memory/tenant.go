package memory

import "fmt"

// Tenant names whose data it is: 1–32 characters of a-z 0-9 -. The zero value is the
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

// Chat is the tenant's chat of an id, as it came in a path, in a body or on a command
// line. Errors are ErrBadName.
func (t Tenant) Chat(id string) (Chat, error) {
	chat, err := ParseChat(id)
	chat.tenant = t.name
	return chat, err
}

// Tenant is whose chat it is.
func (c Chat) Tenant() Tenant { return Tenant{c.tenant} }

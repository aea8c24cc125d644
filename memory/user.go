package memory

import (
	"cmp"
	"context"
	"fmt"
	"time"
)

// User is the author of messages, over the chats of a tenant. The zero value is no user.
type User struct {
	tenant Tenant
	id     string
}

// User is the tenant's user of an id, as it came in a path, in a body or on a command
// line. Errors are ErrBadName.
func (t Tenant) User(id string) (User, error) {
	if !isID(id) {
		return User{}, fmt.Errorf("%w: a user is 1 to 128 characters of A-Z a-z 0-9 . _ : @ + = -, not %s", ErrBadName,
			clip(id))
	}
	return User{t, id}, nil
}

// ParseUser reads back what String wrote into the store.
func ParseUser(s string) (User, error) { return parseOf(s, "user", Tenant.User) }

// IsZero says whether it is no user.
func (u User) IsZero() bool { return u.id == "" }

// ID is the user's id, as its client knows it.
func (u User) ID() string { return u.id }

// Tenant is the user's tenant.
func (u User) Tenant() Tenant { return u.tenant }

// String is the user as it stands in the keys and records of the store, as of a [Chat].
func (u User) String() string { return u.tenant.prefix() + u.id }

// MarshalText is String, for records of the store: no client reads or writes it.
func (u User) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// UnmarshalText is ParseUser.
func (u *User) UnmarshalText(b []byte) (err error) {
	*u, err = ParseUser(string(b))
	return err
}

type zoneKey struct{}

// WithZone returns a context for a run whose user is in a time zone; nil means that the zone is unknown.
func WithZone(ctx context.Context, zone *time.Location) context.Context {
	return context.WithValue(ctx, zoneKey{}, zone)
}

// ZoneOf returns the time zone of the run's user, or fallback if it is unknown.
func ZoneOf(ctx context.Context, fallback *time.Location) *time.Location {
	zone, _ := ctx.Value(zoneKey{}).(*time.Location)
	return cmp.Or(zone, fallback)
}

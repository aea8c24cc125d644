package chat

import (
	"cmp"
	"context"
	"time"

	"github.com/rs/zerolog"

	"mneme/proxy/copilot"
)

// CLI is where sessions live; a *copilot.Supervisor is one.
type CLI interface {
	Create(ctx context.Context, c copilot.SessionConfig) (*copilot.Session, error)
	Resume(ctx context.Context, id string, c copilot.SessionConfig) (*copilot.Session, error)
	Delete(ctx context.Context, id string) error
	Close() error
}

// Scope is the conversation that a request belongs to, and its owner.
type Scope struct {
	Tenant       string
	Route        string // the endpoint's: main, or teammate/<name>
	Conversation string
}

// Owners tells processes that share conversations which of them has a
// conversation's sessions. A call may fail; nothing depends on it but how soon
// another process frees sessions that are of no more use.
type Owners interface {
	// Claim makes owner the one that has the sessions of a scope.
	Claim(ctx context.Context, s Scope, owner string) error
	// Holders gives for each scope the process that has its sessions, empty for none.
	Holders(ctx context.Context, scopes []Scope) ([]string, error)
	// Disown removes the owner of a tenant's conversation, on any route.
	Disown(ctx context.Context, tenant, conversation string) error
}

// Config says how sessions are made and kept. A zero value means its default.
type Config struct {
	// BaseURL is where the CLI sends its model calls: chat completions, with /v1 at
	// its end. APIKey is what it presents there.
	BaseURL string
	APIKey  string
	Owners  Owners        // nil: this process alone
	TTL     time.Duration // how long a conversation can be resumed after its last turn; 24 h
	// Forget erases what BaseURL keeps of a session's model calls; nil: nothing is kept.
	Forget func(ctx context.Context, session string) error
	Limits Limits
	Log    zerolog.Logger
}

// Limits bound the sessions that are not in use at the moment.
type Limits struct {
	Parked     time.Duration // waiting for results of tools; 10 min
	MaxParked  int           // 256, the oldest goes first
	Idle       time.Duration // between turns; 10 min, then the CLI has it on disk only
	MaxIdle    int           // 256
	MaxDormant int           // on the CLI's disk only; 1024
	MaxBranch  int           // of one conversation; 8
	Look       time.Duration // how often expired and foreign sessions are looked for; 3 s
	Connect    time.Duration // how long a request waits for a connection to the CLI; 10 s
	Close      time.Duration // how long Close waits for sessions to end; 3 s
}

func (c Config) withDefaults() Config {
	c.TTL = cmp.Or(c.TTL, 24*time.Hour)
	l := &c.Limits
	l.Parked = cmp.Or(l.Parked, 10*time.Minute)
	l.MaxParked = cmp.Or(l.MaxParked, 256)
	l.Idle = cmp.Or(l.Idle, 10*time.Minute)
	l.MaxIdle = cmp.Or(l.MaxIdle, 256)
	l.MaxDormant = cmp.Or(l.MaxDormant, 1024)
	l.MaxBranch = cmp.Or(l.MaxBranch, 8)
	l.Look = cmp.Or(l.Look, 3*time.Second)
	l.Connect = cmp.Or(l.Connect, 10*time.Second)
	l.Close = cmp.Or(l.Close, 3*time.Second)
	return c
}

// origin is what a request's context says of it.
type origin struct {
	Scope
	minted bool // the conversation's id was made for this request
	final  bool // no later request continues from the answer
}

type originKey struct{}

// In says which conversation the requests of a context belong to. Minted: the client has
// named none, and will hardly come back with this id. Over: the client says that no
// request goes on from the answer, so that its session ends with it.
func In(ctx context.Context, s Scope, minted, final bool) context.Context {
	return context.WithValue(ctx, originKey{}, origin{s, minted, final})
}

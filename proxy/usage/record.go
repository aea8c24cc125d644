package usage

import (
	"strings"
	"time"
)

// Tokens counts the tokens of one call or of many. What a vendor does not tell
// is 0.
type Tokens struct {
	Input         int64 `json:"input"`          // neither read from nor written to the vendor's cache
	CacheRead     int64 `json:"cache_read"`     // of the prompt, read from the vendor's cache
	CacheCreation int64 `json:"cache_creation"` // of the prompt, written to it
	Output        int64 `json:"output"`
	Reasoning     int64 `json:"reasoning"` // part of Output
}

func (t *Tokens) add(u Tokens) {
	t.Input += u.Input
	t.CacheRead += u.CacheRead
	t.CacheCreation += u.CacheCreation
	t.Output += u.Output
	t.Reasoning += u.Reasoning
}

// all counts every token once.
func (t Tokens) all() int64 { return t.Input + t.CacheRead + t.CacheCreation + t.Output }

// OutcomeOK is the outcome of a call that was answered to its end; any other word
// is another end.
const OutcomeOK = "ok"

// Record is one call of a model.
type Record struct {
	At            time.Time // when the call ended; kept to the millisecond
	RequestID     string    // of the gateway; two records with one id are one call
	Tenant        string    // the conversation's owner: a tenant's name, or the hex SHA-256 of a credential; may be empty
	Route         string    // main, or teammate/<name>
	Conversation  string
	Chat          string // as the caller names it, or else its conversation; empty if it named neither
	Run           string // that the call belongs to; empty if the caller named none
	Backend       string // its name in the configuration
	Model         string // as the client calls it
	UpstreamModel string // as the backend calls it
	Tokens        Tokens
	Estimated     bool   // the vendor left some of Tokens untold
	Key           string // id of the caller's key; empty where there are no keys
	TenantName    string // of the caller's principal; empty in records from before there were tenants
	User          string // the tenant's user that the call was for; empty if none is named
	CostMicros    int64  // in millionths of a USD; 0 if not Priced
	Priced        bool   // the price of UpstreamModel is known
	Outcome       string
}

// maxName bounds a name in a record, in bytes: some of them are the client's.
const maxName = 160

// tidy brings a record into the form that every store keeps and gives back.
func (r *Record) tidy() {
	r.At = r.At.UTC().Truncate(time.Millisecond)
	for _, s := range []*string{
		&r.RequestID, &r.Tenant, &r.Route, &r.Conversation, &r.Chat, &r.Run, &r.Backend, &r.Model, &r.UpstreamModel,
		&r.Outcome, &r.Key, &r.TenantName, &r.User,
	} {
		*s = strings.ToValidUTF8((*s)[:min(len(*s), maxName)], "\uFFFD")
	}
	r.Model = strings.Clone(r.Model) // may be a part of a large body
}

package docstore

import (
	"fmt"
	"strings"

	"mneme/memory"
)

// DefaultTenant is whose the collections are as long as callers are not told
// apart.
const DefaultTenant = "default"

// Collection names documents that are searched together. It is comparable; Named
// and OfChat are the only ways to one.
type Collection struct {
	tenant string
	name   string
	chat   memory.Chat // whose documents these are; empty for a collection by name
}

// Named is a tenant's collection of this name. Names, and tenants, are 1 to 64
// characters of a-z 0-9 _ -; others are refused with an *Error.
func Named(tenant, name string) (Collection, error) {
	if !plain(tenant) {
		return Collection{}, refuse(BadCollection, "a tenant is 1 to 64 characters of a-z 0-9 _ -, not %.80q", tenant)
	}
	if !plain(name) {
		return Collection{}, refuse(BadCollection, "a collection's name is 1 to 64 characters of a-z 0-9 _ -, not %.80q",
			name)
	}
	return Collection{tenant: tenant, name: name}, nil
}

// OfChat is the collection of what was loaded into one chat. No name leads to it.
func OfChat(tenant string, chat memory.Chat) (Collection, error) {
	if !plain(tenant) {
		return Collection{}, refuse(BadCollection, "a tenant is 1 to 64 characters of a-z 0-9 _ -, not %.80q", tenant)
	}
	if _, err := memory.ParseChat(chat.String()); err != nil {
		return Collection{}, fmt.Errorf("the documents of a chat: %w", err)
	}
	return Collection{tenant: tenant, name: "chat:" + chat.String(), chat: chat}, nil
}

// String is the collection's name, "chat:<id>" for a chat's.
func (c Collection) String() string { return c.name }

// Tenant is whose it is.
func (c Collection) Tenant() string { return c.tenant }

// Chat is the chat whose documents these are, empty for a collection by name.
func (c Collection) Chat() memory.Chat { return c.chat }

func plain(s string) bool {
	return len(s) >= 1 && len(s) <= 64 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789_-") == ""
}

// keys are those of the collection, in the order that all scripts take them. The
// braces are a Cluster hash tag.
func (c Collection) keys() []string {
	base := "documents:{" + c.tenant + ":" + c.name + "}"
	return []string{base, base + ":heads", base + ":ids", base + ":meta", base + ":log", base + ":vectors"}
}

func (c Collection) documentsKey() string { return c.keys()[0] }
func (c Collection) headsKey() string     { return c.keys()[1] }
func (c Collection) metaKey() string      { return c.keys()[3] }
func (c Collection) logKey() string       { return c.keys()[4] }
func (c Collection) vectorsKey() string   { return c.keys()[5] }

// namesKey is the set of the names of a tenant's collections.
func namesKey(tenant string) string { return "documents:{" + tenant + "}" }

package problem

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"

	"mneme/access"
	"mneme/apiserver/api"
	"mneme/memory"
)

// AcceptsSSE reports whether a client accepts an event stream.
func AcceptsSSE(r *http.Request) bool {
	return slices.ContainsFunc(r.Header.Values("Accept"), func(v string) bool {
		return strings.Contains(v, "text/event-stream")
	})
}

// TenantOf returns the caller's tenant, which owns the request's data.
func TenantOf(c *gin.Context) memory.Tenant { return access.FromContext(c.Request.Context()).Tenant }

// ChatOf returns the chat in the path.
func ChatOf(c *gin.Context) (memory.Chat, error) { return TenantOf(c).Chat(c.Param("chat")) }

// Param returns a route's handler, which calls h with the value of read.
func Param[T any](read func(*gin.Context) (T, error), h func(*gin.Context, T) error) func(*gin.Context) error {
	return func(c *gin.Context) error {
		v, err := read(c)
		if err != nil {
			return err
		}
		return h(c, v)
	}
}

// decoder decodes a request body: api.DecodeBody, or api.DecodeKnown for bodies that people write.
type decoder func(w http.ResponseWriter, r *http.Request, limit int64, v any) error

// Body returns a route's handler, which calls h with the decoded body of at most limit bytes.
func Body[T any](decode decoder, limit int64, h func(*gin.Context, T) error) func(*gin.Context) error {
	return Param(func(c *gin.Context) (v T, err error) {
		err = decode(c.Writer, c.Request, limit, &v)
		return v, err
	}, h)
}

// InChat returns a route's handler, which calls h with the path's chat and a body that people write.
func InChat[T any](limit int64, h func(*gin.Context, memory.Chat, T) error) func(*gin.Context) error {
	return Param(ChatOf, func(c *gin.Context, chat memory.Chat) error {
		return Body(api.DecodeKnown, limit, func(c *gin.Context, v T) error { return h(c, chat, v) })(c)
	})
}

// ChatOfAny returns the chat in an internal path, which names the tenant.
func ChatOfAny(c *gin.Context) (memory.Chat, error) { return memory.ParseChat(c.Param("chat")) }

// IsOfUser reports whether the path has a user.
func IsOfUser(c *gin.Context) bool {
	_, ok := c.Params.Get("user")
	return ok
}

// UserOf returns the user in the path.
func UserOf(c *gin.Context) (memory.User, error) { return TenantOf(c).User(c.Param("user")) }

// KeyOf returns the key of the history in the path: the chat's own or a subagent's.
func KeyOf(c *gin.Context) (memory.Key, error) {
	chat, err := ChatOf(c)
	if err != nil {
		return memory.Key{}, err
	}
	name, ok := c.Params.Get("name")
	if !ok {
		return memory.ChatKey(chat), nil
	}
	agent, err := memory.ParseAgent(name)
	return memory.SubagentKey(agent, chat), err
}

// Flag returns a query parameter that is true or false, or false if it is absent.
func Flag(c *gin.Context, name string) (bool, error) {
	switch text := c.Query(name); text {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	default:
		return false, BadRequest("%s is true or false, not %.40q.", name, text)
	}
}

// Number returns an integer query parameter from low to high, or fallback if it is absent.
func Number(c *gin.Context, name string, fallback, low, high int) (int, error) {
	text := c.Query(name)
	if text == "" {
		return fallback, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < low || n > high {
		return 0, BadRequest("%s is a whole number from %d to %d, not %.40q.", name, low, high, text)
	}
	return n, nil
}

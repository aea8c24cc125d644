package webmemory

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"mneme/access"
	"mneme/access/limit"
	"mneme/apiserver/api"
	"mneme/memory"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/node"
	"mneme/webmemory/problem"
)

// keyring serves /v1/keys. Config.Keys stores the keys. An admin manages the keys of its own tenant, or of all tenants
// if it belongs to the default tenant.
type keyring struct{ *node.Core }

const maxKeyBody = 64 << 10

var (
	errUnknownKey = &api.Problem{Status: http.StatusNotFound, Code: webapi.CodeUnknownKey,
		Message: "There is no key with this id; GET /v1/keys lists them."}
)

// on returns h, or a handler that returns problem.ErrKeysOff if the service has no keys.
func (s *keyring) on(h func(*gin.Context) error) func(*gin.Context) error {
	return func(c *gin.Context) error {
		if s.Cfg.Keys == nil {
			return problem.ErrKeysOff
		}
		// A tenant may have thousands of keys.
		return keyProblem(s.Searches.In(c.Request.Context(), problem.TenantOf(c), func() error { return h(c) }))
	}
}

// keyProblem replaces errors of package access with responses.
func keyProblem(err error) error {
	switch {
	case errors.Is(err, access.ErrBadKey):
		return problem.BadRequest("The key cannot be had so: %s.", strings.TrimPrefix(err.Error(),
			access.ErrBadKey.Error()+": "))
	case errors.Is(err, access.ErrUnknownKey):
		return errUnknownKey
	}
	return err
}

// errOthersTenant rejects another tenant in a query, whether or not it exists.
var errOthersTenant = &api.Problem{Status: http.StatusForbidden, Code: "forbidden",
	Message: "tenant must be the key's own: only an admin of the default tenant reads about other tenants."}

// tenantAsked returns the query's tenant, or the caller's own. Another one needs an admin of the default tenant.
func tenantAsked(c *gin.Context) (memory.Tenant, error) {
	name := c.Query("tenant")
	if name == "" {
		return problem.TenantOf(c), nil
	}
	tenant, err := memory.ParseTenant(name)
	switch {
	case err != nil:
		return tenant, problem.BadRequest("%s.", err)
	case !node.Governs(c, tenant):
		return tenant, errOthersTenant
	case tenant != problem.TenantOf(c):
		err = access.FromContext(c.Request.Context()).Need(access.Admin)
	}
	return tenant, err
}

// self returns the caller's key id, tenant and scopes, so that a client detects missing scopes before a request fails.
func self(c *gin.Context) error {
	p := access.FromContext(c.Request.Context())
	c.Header("Cache-Control", "no-store")
	return api.Answer(c.Writer, http.StatusOK, webapi.Self{ID: p.Key, Tenant: p.Tenant, Scopes: p.Scopes}, nil)
}

func (s *keyring) listKeys(c *gin.Context) error {
	keys, err := s.Cfg.Keys.List(c.Request.Context())
	if err != nil {
		return err
	}
	keys = slices.DeleteFunc(keys, func(k access.Key) bool { return !node.Governs(c, k.Tenant) })
	uses, err := limit.Uses(c.Request.Context(), s.Cfg.Limiter, keys)
	if err != nil {
		return err
	}
	list := webapi.KeyList{Keys: make([]webapi.KeyEntry, len(keys))}
	for i, k := range keys {
		list.Keys[i] = webapi.KeyEntry{Key: k, Uses: uses[i]}
	}
	return api.Answer(c.Writer, http.StatusOK, list, nil)
}

func (s *keyring) createKey(c *gin.Context, body webapi.KeyRequest) error {
	if (body.Tenant == memory.Tenant{}) {
		body.Tenant = access.FromContext(c.Request.Context()).Tenant
	}
	if !node.Governs(c, body.Tenant) {
		return problem.BadRequest("The key cannot be had so: an admin of a tenant makes keys of this tenant only.")
	}
	limits, err := access.ParseLimits(body.Rate, body.Budget)
	if err != nil {
		return problem.BadRequest("The key cannot be had so: %s.", strings.TrimPrefix(err.Error(),
			access.ErrBadLimit.Error()+": "))
	}
	text, k, err := s.Cfg.Keys.Create(c.Request.Context(), access.Key{
		Name: body.Name, Tenant: body.Tenant, Scopes: body.Scopes, Limits: limits,
		Expires: body.Expires.UTC().Truncate(time.Second),
	})
	if err == nil {
		c.Set(auditTarget, "keys/"+k.ID)
	}
	return s.showKey(c, http.StatusCreated, text, k, err)
}

// showKey returns the text of a key, which caches must not store.
func (s *keyring) showKey(c *gin.Context, status int, text string, k access.Key, err error) error {
	if err != nil {
		return err
	}
	c.Header("Cache-Control", "no-store")
	return api.Answer(c.Writer, status, webapi.MadeKey{Text: text, Key: k}, nil)
}

// governed returns the path's key id, or access.ErrUnknownKey if the caller may not change the key.
func (s *keyring) governed(c *gin.Context) (string, error) {
	k, err := s.Cfg.Keys.Get(c.Request.Context(), c.Param("key"))
	if err == nil && !node.Governs(c, k.Tenant) {
		err = access.ErrUnknownKey
	}
	return k.ID, err
}

func (s *keyring) revokeKey(c *gin.Context) error {
	id, err := s.governed(c)
	if err != nil {
		return err
	}
	k, err := s.Cfg.Keys.Revoke(c.Request.Context(), id)
	return api.Answer(c.Writer, http.StatusOK, k, err)
}

func (s *keyring) rotateKey(c *gin.Context, body webapi.RotateRequest) error {
	id, err := s.governed(c)
	if err != nil {
		return err
	}
	text, k, err := s.Cfg.Keys.Rotate(c.Request.Context(), id, time.Duration(body.Overlap)*time.Second)
	return s.showKey(c, http.StatusOK, text, k, err)
}

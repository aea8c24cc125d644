package chats

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"mneme/access"
	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/erasures"
	"mneme/memory/redisstore"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/erase"
	"mneme/webmemory/node"
	"mneme/webmemory/problem"
	"mneme/webmemory/runs"
	"mneme/webmemory/turns"
)

// Tenancy lists, exports and erases tenants. An erasure first revokes the tenant's keys, then sweeps in batches until
// nothing of the tenant is found, and removes the lists last.
//
// Each erased item leaves its list in Redis. So the next request continues an interrupted erasure, and concurrent
// erasures are harmless.
type Tenancy struct {
	*node.Core
	Portable *Portable
	Eraser   *erase.Eraser
	Leaser   *turns.Leaser
}

// Limits of one request.
const (
	maxTenantChats  = 200
	maxTenantUsers  = 100
	tenantEraseTime = 20 * time.Second // after which no further item is started
	tenantEraseMost = 2 * time.Minute
	// keysKnown is the time after which no process accepts a revoked key. It exceeds access.Fresh because revocation times
	// have a resolution of one second and an admitted request may start late.
	keysKnown = access.Fresh + 2*time.Second
	// lateWrites is the last step's wait for the gateway's counters of stopped calls.
	lateWrites = 3 * time.Second
	// lastSweeps limits the last step's sweeps for new data.
	lastSweeps = 10
)

// Actions in the default tenant's audit log, except tenantExported.
const (
	tenantEraseBegun = access.TenantErased + ".begin"
	tenantErased     = access.TenantErased
	tenantExported   = "tenant.export" // in the tenant's own log
)

var (
	errUnknownTenant = &api.Problem{Status: http.StatusNotFound, Code: webapi.CodeUnknownTenant,
		Message: "There is no tenant of this name; GET /v1/tenants lists them."}
	errDefaultTenant = &api.Problem{Status: http.StatusConflict, Code: webapi.CodeDefaultTenant,
		Message: "The default tenant runs the service and is not erased as a whole: erase its chats, users and collections " +
			"(mneme memory rm, mneme memory rm --user, DELETE /v1/collections/…), or all of it with the service's Redis."}
)

// On returns h, or a handler that returns problem.ErrKeysOff if the service has no keys.
func (s *Tenancy) On(h func(*gin.Context) error) func(*gin.Context) error {
	return func(c *gin.Context) error {
		if s.Cfg.Keys == nil {
			return problem.ErrKeysOff
		}
		return h(c)
	}
}

// TenantIn returns the path's tenant. A tenant that the caller does not govern is reported as unknown.
func TenantIn(c *gin.Context) (memory.Tenant, error) {
	tenant, err := memory.ParseTenant(c.Param("tenant"))
	if err == nil && !node.Governs(c, tenant) {
		err = errUnknownTenant
	}
	return tenant, err
}

// inFile returns the key ids of the operator's file by tenant.
func (s *Tenancy) inFile() map[memory.Tenant][]string {
	if s.Cfg.Gate == nil || s.Cfg.Gate.Keys == nil {
		return nil
	}
	return s.Cfg.Gate.Keys.InFile()
}

// ListTenants handles GET /v1/tenants. An admin of the default tenant gets all tenants, another caller its own.
func (s *Tenancy) ListTenants(c *gin.Context) error {
	list, err := s.tenants(c.Request.Context())
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(t webapi.Tenant) bool { return !node.Governs(c, t.Tenant) })
	return api.Answer(c.Writer, http.StatusOK, webapi.TenantList{Tenants: list}, nil)
}

// tenants returns, by name, the default tenant and all tenants that have or used keys or are being erased.
func (s *Tenancy) tenants(ctx context.Context) ([]webapi.Tenant, error) {
	keys, err := s.Cfg.Keys.List(ctx)
	if err != nil {
		return nil, err
	}
	good, tenants := map[memory.Tenant]int{}, []memory.Tenant{{}}
	now := time.Now()
	for _, k := range keys {
		tenants = append(tenants, k.Tenant)
		if k.Revoked.IsZero() && (k.Expires.IsZero() || now.Before(k.Expires)) {
			good[k.Tenant]++
		}
	}
	for tenant, ids := range s.inFile() {
		tenants = append(tenants, tenant)
		good[tenant] += len(ids)
	}
	uses, err := s.Store.Tenants.List(ctx, tenants...)
	if err != nil {
		return nil, err
	}
	list := make([]webapi.Tenant, len(uses))
	for i, u := range uses {
		list[i] = webapi.Tenant{Tenant: u.Tenant, Keys: good[u.Tenant], Chats: u.Chats, Bytes: u.Bytes, Used: u.Used,
			Erasing: u.Erasing}
	}
	slices.SortFunc(list, func(a, b webapi.Tenant) int { return strings.Compare(a.Tenant.String(), b.Tenant.String()) })
	return list, nil
}

// DeleteTenant handles DELETE /v1/tenants/{tenant}.
func (s *Tenancy) DeleteTenant(c *gin.Context, tenant memory.Tenant) error {
	if (tenant == memory.Tenant{}) {
		return errDefaultTenant
	}
	if ids := s.inFile()[tenant]; len(ids) > 0 {
		return &api.Problem{Status: http.StatusConflict, Code: webapi.CodeKeysInFile, Message: fmt.Sprintf("Keys of the "+
			"tenant stand in auth.keys_file and cannot be revoked here: take %s out of it, for all processes, wait 10 seconds "+
			"and ask again. Nothing was erased.", strings.Join(ids, ", "))}
	}
	e := tenantErasure{Tenancy: s, tenant: tenant, caller: access.FromContext(c.Request.Context()), began: time.Now()}
	// The erasure revokes the caller's key, which may cancel the request's context.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Request.Context()), tenantEraseMost)
	defer cancel()
	defer context.AfterFunc(s.Life, cancel)()
	err := e.run(ctx)
	return api.Answer(c.Writer, http.StatusOK, e.out, err)
}

// tenantErasure is one request's part of a tenant's erasure.
type tenantErasure struct {
	*Tenancy
	tenant memory.Tenant
	caller access.Principal
	began  time.Time
	out    webapi.ErasedTenant
}

// run erases as much as one request may.
func (e *tenantErasure) run(ctx context.Context) error {
	first, err := e.Store.Tenants.BeginErasing(ctx, e.tenant)
	if err != nil {
		return err
	}
	if first {
		e.keep(ctx, tenantEraseBegun)
	}
	// Revoke the caller's key last, so that it can continue an interrupted erasure. Until all processes know of the
	// revocations, other keys may write. The sweeps erase that data too.
	if _, err = e.revoke(ctx, func(k access.Key) bool { return k.ID != e.caller.Key }); err == nil {
		err = e.sweep(ctx)
	}
	if err != nil || e.out.Remaining > 0 || e.late() {
		return err
	}
	revokedAt, err := e.revoke(ctx, func(access.Key) bool { return true })
	if err != nil {
		return err
	}
	if err := node.Pause(ctx, max(time.Until(revokedAt.Add(keysKnown)), lateWrites)); err != nil {
		return err
	}
	e.began = time.Now()
	for range lastSweeps { // no key of the tenant works any more
		prev := e.out
		if err := e.sweep(ctx); err != nil {
			return err
		}
		if e.out == prev {
			return e.finish(ctx)
		}
	}
	e.out.Remaining = max(e.out.Remaining, 1)
	return nil
}

// late reports whether the request has used its time.
func (e *tenantErasure) late() bool { return time.Since(e.began) > tenantEraseTime }

// revoke revokes the tenant's keys that which selects. last is the latest revocation time of all its keys.
func (e *tenantErasure) revoke(ctx context.Context, which func(access.Key) bool) (last time.Time, err error) {
	keys, err := e.keys(ctx)
	for _, k := range keys {
		if err == nil && k.Revoked.IsZero() && which(k) {
			if k, err = e.Cfg.Keys.Revoke(ctx, k.ID); err == nil {
				e.out.Keys++
			}
		}
		if k.Revoked.After(last) {
			last = k.Revoked
		}
	}
	return last, err
}

func (e *tenantErasure) keys(ctx context.Context) ([]access.Key, error) {
	keys, err := e.Cfg.Keys.List(ctx)
	return slices.DeleteFunc(keys, func(k access.Key) bool { return k.Tenant != e.tenant }), err
}

// sweep erases chats, then users, then remote data, as time allows.
func (e *tenantErasure) sweep(ctx context.Context) error {
	e.out.Remaining = 0
	done := e.done()
	for _, step := range []func(context.Context) error{e.chats, e.users, e.remote} {
		if e.late() {
			break
		}
		if err := step(ctx); err != nil {
			// Report progress instead of the error. The next request returns the error if it makes no progress.
			if e.done() > done && ctx.Err() == nil {
				e.Log.Warn().Err(err).Str("tenant", e.tenant.String()).Msg("the erasure of a tenant goes on with the next request")
				e.out.Remaining = max(e.out.Remaining, 1)
				break
			}
			return err
		}
	}
	if e.done() == done {
		return nil
	}
	return e.Eraser.Scrub()
}

// done returns the number of erased items.
func (e *tenantErasure) done() int {
	o := e.out
	return o.Chats + o.Users + o.Collections + o.Conversations
}

// chats erases a batch of chats like DELETE /v1/chats/{chat}.
func (e *tenantErasure) chats(ctx context.Context) error {
	page, total, err := e.Store.Tenants.SomeChats(ctx, e.tenant, maxTenantChats)
	if err != nil {
		return err
	}
	done := 0
	var failed error
	for _, chat := range page {
		if e.late() || ctx.Err() != nil {
			break
		}
		err := e.Tier.Wake(ctx, chat)
		if err == nil || node.Unread(err) {
			_, err = turns.TakeAwayUnscrubbed(e.Tenancy.Leaser, chat, runs.Deleting, 2*node.StoreTimeout+redisstore.Beat,
				func(ctx context.Context, w *runs.Writer) (webapi.Erased, error) {
					return e.Eraser.EraseUnder(ctx, w, erase.Scope{Counted: true})
				})
		}
		if err == nil {
			err = e.Store.Tenants.ForgetChat(ctx, chat)
		}
		if err != nil {
			e.Log.Warn().Err(err).Str("chat", chat.String()).Msg("a chat of a tenant was not erased; it stays on the list")
			failed = errors.Join(failed, err)
			continue
		}
		done++
	}
	e.out.Chats += done
	e.out.Remaining += total - done
	if done == 0 {
		return errors.Join(failed, ctx.Err())
	}
	return nil
}

// users erases a batch of users' notes and lists. It waits until no chat remains, because chats can add notes.
func (e *tenantErasure) users(ctx context.Context) error {
	page, total, err := e.Store.Tenants.Users(ctx, e.tenant, 0, maxTenantUsers)
	if err != nil || e.out.Remaining > 0 {
		e.out.Remaining += total
		return err
	}
	for i, u := range page {
		if e.late() {
			e.out.Remaining += total - i
			return nil
		}
		now := time.Now().UnixMilli()
		if err := e.Follower.File.Add(map[string]int64{erasures.User(u): now}); err != nil {
			return err
		}
		if _, err := e.Store.Users.EraseNotes(ctx, now, u); err != nil {
			return err
		}
		if err := e.Store.Tenants.ForgetUser(ctx, u); err != nil {
			return err
		}
		e.out.Users++
	}
	e.out.Remaining += total - len(page)
	return nil
}

// remote erases a batch at the apiserver and the gateway.
func (e *tenantErasure) remote(ctx context.Context) error {
	out, err := e.Runs.EraseTenant(ctx, e.tenant)
	if err != nil {
		return node.Unreachable(err)
	}
	e.out.Collections += out.Collections
	e.out.Conversations += out.Conversations
	e.out.Remaining += out.Remaining
	return nil
}

// finish removes usage counters, spent budgets, the audit log, key records and lists. Its last step ends the erasure.
func (e *tenantErasure) finish(ctx context.Context) error {
	if e.Cfg.Usage != nil {
		if err := e.Cfg.Usage.Erase(ctx, e.tenant); err != nil {
			return err
		}
	}
	if e.Cfg.EraseLimits != nil {
		if err := e.Cfg.EraseLimits(ctx, e.tenant); err != nil {
			return err
		}
	}
	if err := e.Cfg.Audit.Erase(ctx, e.tenant); err != nil {
		return err
	}
	keys, err := e.keys(ctx)
	for _, k := range keys {
		if err == nil {
			err = e.Cfg.Keys.Erase(ctx, k.ID)
		}
	}
	if err != nil {
		return err
	}
	e.keep(ctx, tenantErased)
	if err := e.Store.Tenants.Forget(ctx, e.tenant); err != nil {
		return err
	}
	e.out.Done = true
	return nil
}

// keep writes to the default tenant's audit log, because the tenant's own log is erased.
func (e *tenantErasure) keep(ctx context.Context, action string) {
	e.WriteAudit(ctx, memory.Tenant{}, action, "tenants/"+e.tenant.String())
}

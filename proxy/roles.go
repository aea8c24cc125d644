package proxy

import (
	"slices"

	"mneme/proxy/sanitize"
	"mneme/proxy/thinking"
	"mneme/proxy/wire"
)

// role is what metrics call a refusal of a role or of an order of roles.
const role = "role"

// otherRoles is the cure for roles that the backend does not accept. The first one gives up no more than the error asks
// for. If that does not suffice, a second one has chat completions go without any system message.
func (a *attempt) otherRoles() *cure {
	was, is := a.known.profile.Roles, a.fitting.Roles
	switch refused := a.answer.role; {
	case refused == thinking.RolePrefill && !is.NoPrefill:
		is.NoPrefill = true
	case refused == thinking.RoleDeveloper && is.Developer:
		is.Developer = false
	case refused == thinking.RoleOrder && !is.Strict:
		is.Strict, is.SystemInside = true, false
	case refused == thinking.RoleSystem && is.SystemInside:
		is.SystemInside = false
	case (refused == thinking.RoleOrder || refused == thinking.RoleSystem) && !is.NoSystem &&
		a.backend.dialect == wire.Chat:
		is.NoSystem = true
	default:
		return nil
	}
	var told sanitize.RolesOverrides
	for _, o := range []struct {
		to      **bool
		is, was bool
	}{
		{&told.SystemInside, is.SystemInside, was.SystemInside}, {&told.NoSystem, is.NoSystem, was.NoSystem},
		{&told.Developer, is.Developer, was.Developer}, {&told.Strict, is.Strict, was.Strict},
		{&told.NoPrefill, is.NoPrefill, was.NoPrefill},
	} {
		if o.is != o.was {
			*o.to = &o.is
		}
	}
	c := a.newCure(cureRole, role, sanitize.Rule{Model: a.model, Profile: sanitize.Overrides{Roles: told}})
	c.partial = !slices.ContainsFunc(a.cures, func(c *cure) bool { return c.kind == cureRole })
	return c
}

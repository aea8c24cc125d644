package proxy

import (
	"slices"

	"mneme/proxy/sanitize"
	"mneme/proxy/thinking"
	"mneme/proxy/wire"
)

// role is the label of refused roles, and of a refused order of roles, in metrics.
const role = "role"

// otherRoles returns the cure for roles that the backend does not accept. The first cure changes only refused roles.
// If that does not suffice, the second one removes all system messages from chat completions.
func (a *attempt) otherRoles() *cure {
	was, is := a.modelInfo.profile.Roles, a.fitting.Roles
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
	var overrides sanitize.RolesOverrides
	for _, o := range []struct {
		dst     **bool
		is, was bool
	}{
		{&overrides.SystemInside, is.SystemInside, was.SystemInside}, {&overrides.NoSystem, is.NoSystem, was.NoSystem},
		{&overrides.Developer, is.Developer, was.Developer}, {&overrides.Strict, is.Strict, was.Strict},
		{&overrides.NoPrefill, is.NoPrefill, was.NoPrefill},
	} {
		if o.is != o.was {
			*o.dst = &o.is
		}
	}
	c := a.newCure(cureRole, role, sanitize.Rule{Model: a.model, Profile: sanitize.Overrides{Roles: overrides}})
	c.partial = !slices.ContainsFunc(a.cures, func(c *cure) bool { return c.kind == cureRole })
	return c
}

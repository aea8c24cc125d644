// Package access says who may come in and as whom: keys with tenants, scopes and limits,
// and the principal of a request.
package access

// Package access authenticates and authorizes callers: keys with tenants, scopes and
// limits, and the principal of a request.
package access

// Package access authenticates and authorizes callers: keys with tenants, scopes and limits, and the principal of a
// request. A Gate lets a request in before its body is read.
//
// It owns the keys in Redis (mneme:keys, mneme:key:<id>, as hashes of their texts), what each process has read of
// them, and the goroutine of an Authenticator that notes when keys were used. It never keeps, logs or answers with
// the text of a key, and never decides by what a body says: a route's scope is in its service's table of rights.
package access

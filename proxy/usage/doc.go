// Package usage counts the tokens of model calls: it reads them from answers of all dialects as they pass, and
// estimates what a vendor leaves untold. Its reports are sums of the counters that package tally reads. It owns the
// counts of calls that are under way; it never delays an answer and never decides whether a call may be made (package
// access/limit does).
package usage

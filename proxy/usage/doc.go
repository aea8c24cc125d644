// Package usage counts the tokens of model calls: it reads them from answers of both dialects as they pass, and
// estimates what a vendor leaves untold. Its reports are sums of the counters that package tally reads.
package usage

// Package sanitize is the last hop of a request: a pure function from a request to the request that its vendor takes,
// and a list of what it changed. What a vendor takes is a Profile, found in profiles.yaml by the vendor and by the
// model's name as the vendor knows it. The rules that make a request fit stand in one list per dialect (rules.go),
// each a function of its own.
//
// It owns nothing and has no goroutine. It never changes a byte that no rule names: with nothing to do the request
// that comes back is the very slice that went in.
package sanitize

// The rules hold these invariants of everything that leaves:
//
//  1. reasoning goes back only where and how the vendor takes it, and where it
//     must not be missing an empty placeholder stands for it;
//  2. the way thinking is asked for is one that the model knows, and what stands
//     beside it (budget, tool_choice, effort, sampling, context edits, the
//     beginning of the current tool loop) agrees with it, else thinking is off;
//  3. calls of tools and their results are chained, their ids legal and unique;
//  4. nothing is empty that must not be, and roles come as the vendor allows;
//  5. every byte that no rule names stays. With nothing to do the request that
//     comes back is the very slice that went in.
//
// A request sanitized twice equals one sanitized once. What is done to a message
// depends on the messages before it and on the results that directly follow it,
// never on what comes later, so that a conversation that grows keeps its
// beginning and with it the vendor's cache. Two things move on purpose: surplus
// cache markers, and what a switch of thinking asks of earlier turns.

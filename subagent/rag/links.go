package rag

import (
	"net/netip"
	"regexp"
	"strings"
)

// linkRemoved takes the place of an address.
const linkRemoved = "(link removed)"

// linkPatterns match addresses in normalised text (see fold): with any scheme; without one, as
// browsers complete them; and hosts with a path or a query, also when they are written so that they
// are not links.
var linkPatterns = regexp.MustCompile(strings.NewReplacer(
	"REST", `[^\s<>()\[\]"'`+"`"+`]`, "DOT", `(?:\.|\[\.\]|\(\.\)|\[dot\]|\(dot\)|\{\.\})`, "TLD",
	`(?:[a-z]{2,24}|xn--[a-z0-9-]+|p[ф])`,
).Replace(`[a-z][a-z0-9+.-]{1,30}:[/\\]{2}REST+` +
	`|h(?:tt|xx)ps?\s?:[/\\]*REST+` +
	`|(?:java|vb|live)script:REST+` +
	`|(?:\b|[0-9_])(?:ftps?|file|wss?|blob|mailto|view-source|ms-[a-z-]+):REST+` +
	`|\bdata:(?:[a-z]+/REST*|REST*,REST+|;REST+)` +
	`|(?:\b|[0-9_])www(?:\.|\[\.\]|\(\.\))REST+` +
	`|\](?:\(|:)\s*<?(?:[a-z][a-z0-9+.-]*:REST+|[/\\]\s?[/\\]REST*)` +
	`|(?:^|[\s(<"'=|])[/\\]{2}[\p{L}\p{N}-]+(?:DOT[\p{L}\p{N}-]+)+REST*` +
	`|(?:[\p{L}\p{N}_-]+DOT)+TLD(?::\d{1,5})?(?:/REST*|\?REST+)` +
	`|\b\d{1,3}(?:DOT\d{1,3}){3}(?::\d{1,5})?[/?][a-z?]REST*`))

// fileName matches a file's name that looks like a host. None of these endings is a top-level
// domain.
var fileName = regexp.MustCompile(
	`^[^/?#:]*\.(?:js|mjs|ts|tsx|jsx|json|ya?ml|txt|toml|xml|csv|tsv|pdf|docx?|xlsx|html?|css|cpp|go|exe|conf|cfg|ini|log|lock|mod|sum|sql|ipynb|gz|jar)/`,
)

// addressTail are characters that may follow an address without being part of it.
const addressTail = ".,;:!?*_~|…»”’\\"

// addresses are the places of the addresses in a normalised text.
func addresses(f folding) [][2]int {
	var list [][2]int
	if !strings.ContainsAny(f.text, `:/\?`) && !strings.Contains(f.text, "www") {
		return nil
	}
	for _, m := range linkPatterns.FindAllStringIndex(f.text, -1) {
		start := m[0] + len(f.text[m[0]:m[1]]) - len(strings.TrimLeft(f.text[m[0]:m[1]], "](: \t\n<\"'=|"))
		found := f.text[start:m[1]]
		if fileName.MatchString(found) || private(found) {
			continue
		}
		list = append(list, [2]int{start, m[1]})
	}
	return list
}

// private reports whether an address without a scheme is on this machine or its own network, so
// that nothing can leak to it.
func private(address string) bool {
	host := address[:len(address)-len(strings.TrimLeft(address, "0123456789."))]
	ip, err := netip.ParseAddr(host)
	return err == nil && (ip.IsLoopback() || ip.IsPrivate())
}

// foreign are the changes that remove addresses which allowed does not know. The whole address has
// to be known: one that a longer address begins with allows nothing.
func foreign(source string, f folding, allowed func(address string) bool) (changes []change) {
	for _, at := range addresses(f) {
		start, end := f.start[at[0]], f.end[at[1]-1]
		found := source[start:end]
		bare := strings.TrimRight(found, addressTail)
		if allowed(found) || allowed(bare) {
			continue
		}
		bare = strings.TrimRight(found, ".,;:!?*|")
		by := linkRemoved
		if strings.HasSuffix(source[:start], "]") { // a Markdown link would need the parenthesis here
			by = " " + by
		}
		changes = append(changes, change{start, start + len(bare), by})
	}
	return changes
}

// readAddresses adds the addresses of a text.
func readAddresses(text string, into map[string]bool) {
	f := fold(text)
	for _, at := range addresses(f) {
		into[canonicalAddress(text[f.start[at[0]]:f.end[at[1]-1]])] = true
	}
}

// canonicalAddress removes what does not make an address a different one.
func canonicalAddress(address string) string {
	return strings.TrimSuffix(strings.TrimRight(address, addressTail), "/")
}

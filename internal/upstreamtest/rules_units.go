package upstreamtest

import (
	"crypto/hmac"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Encrypted contents begin with "gAAAA", as real ones do.
var tokenHead = []byte{0x80, 0, 0, 0, 0}

// encrypt makes the encrypted content of an item: its id and a MAC, as long as that of this text may be. It
// can be verified without memory, by any Server of the same name.
func (s signer) encrypt(kind, id, text string) string {
	b := append(slices.Clone(tokenHead), byte(len(id)))
	b = append(b, id...)
	b = append(b, padding(text)...)
	return base64.URLEncoding.EncodeToString(append(b, s.sum(kind, string(b))...))
}

// decrypt gives the id of the item that an encrypted content was made for; ok is false if this backend did
// not make it for an item of this kind.
func (s signer) decrypt(kind, content string) (id string, ok bool) {
	b, err := base64.URLEncoding.Strict().DecodeString(content)
	if err != nil || len(b) < len(tokenHead)+1+macSize {
		return "", false
	}
	sealed, mac := b[:len(b)-macSize], b[len(b)-macSize:]
	rest := sealed[len(tokenHead):]
	n := int(rest[0])
	if n >= len(rest) || !hmac.Equal(mac, s.sum(kind, string(sealed))) {
		return "", false
	}
	return string(rest[1 : 1+n]), true
}

// encryptedIsOwn verifies every encrypted content by itself, and finds out which items the reasoning items
// and compactions are.
func encryptedIsOwn(x *exchange) error {
	x.known = make([]string, len(x.items))
	for i, item := range x.items {
		kind := itemKind(item)
		if kind != reasoningItem && kind != compactionItem {
			continue
		}
		id := item.str("id")
		content, ok := item.text("encrypted_content")
		if !ok {
			switch x.known[i] = id; {
			case i < x.input:
			case id == "":
				return missingParameter(fmt.Sprintf("input[%d].id", i-x.input))
			case x.server.stored(id) == nil:
				return x.notFound(id)
			}
			continue
		}
		x.known[i], ok = x.server.signer.decrypt(kind, content)
		switch {
		case !ok:
			return x.unverified(id, content, "Encrypted content could not be decrypted or parsed.")
		case id != "" && id != x.known[i]:
			return x.unverified(id, content, "Encrypted content item_id did not match the target item id.")
		}
		if kind == compactionItem {
			x.compaction = x.known[i]
		}
	}
	return nil
}

func (x *exchange) unverified(id, content, reason string) error {
	r := refusal{status: http.StatusBadRequest, code: "invalid_encrypted_content", inStream: x.config.Responses.InStream,
		message: "The encrypted content for item " + id + " could not be verified. Reason: " + reason}
	if id == "" || x.config.Responses.OldWording {
		if n := len(content); n > 8 {
			content = content[:4] + "..." + content[n-4:]
		}
		r.message = "The encrypted content " + content + " could not be verified."
	}
	if x.config.Responses.Azure {
		r.code = ""
	}
	return r
}

// pairs are the types of calls and of their outputs, with what OpenAI calls the former.
var pairs = []struct{ call, output, word string }{
	{callItem, outputItem, "function call"}, {customItem, customOutputItem, "custom tool call"},
}

// outputsPair wants a call before every output, and an output behind every call.
func outputsPair(x *exchange) error {
	for _, pair := range pairs {
		var open []string
		called := map[string]bool{}
		for _, item := range x.items {
			id := item.str("call_id")
			switch itemKind(item) {
			case pair.call:
				called[id] = true
				open = append(open, id)
			case pair.output:
				if !called[id] {
					return refused("", "input", "No tool call found for "+pair.word+" output with call_id "+id+".")
				}
				open = slices.DeleteFunc(open, func(o string) bool { return o == id })
			}
		}
		if len(open) > 0 {
			return refused("", "input", "No tool output found for "+pair.word+" "+open[0]+".")
		}
	}
	return nil
}

// answers says whether an item is the model's.
func answers(item members) bool {
	switch itemKind(item) {
	case messageItem:
		return item.is("role", assistant)
	case outputItem, customOutputItem, "local_shell_call_output":
		return false
	}
	return true
}

// unitsHold wants the items that a reasoning item led to behind it, and the reasoning item before those of
// them that still have their ids.
func unitsHold(x *exchange) error {
	for i, item := range x.items {
		if itemKind(item) == reasoningItem && !x.followed(i) {
			id := item.str("id")
			if id == "" {
				id = x.known[i]
			}
			return refused("", "input", "Item '"+id+"' of type 'reasoning' was provided without its required following item.")
		}
		id := item.str("id")
		m := x.server.items.get(id)
		if m == nil || m.reasoning == "" || itemKind(item) == reasoningItem || itemKind(item) == compactionItem {
			continue
		}
		before := x.known[:i]
		if m.first {
			before = x.known[max(i-1, 0):i]
		}
		if !slices.Contains(before, m.reasoning) {
			return refused("", "input", "Item '"+id+"' of type '"+itemKind(item)+
				"' was provided without its required 'reasoning' item: '"+m.reasoning+"'.")
		}
	}
	return nil
}

// followed says whether the reasoning item i stands before an item of its own unit, or one that is forgotten; more
// reasoning may stand between.
func (x *exchange) followed(i int) bool {
	j := i
	for j < len(x.items) && itemKind(x.items[j]) == reasoningItem {
		j++
	}
	if j == len(x.items) || !answers(x.items[j]) {
		return false
	}
	m := x.server.madeOf(x.items[j])
	if m == nil || x.server.items.get(x.known[j-1]) == nil {
		return true
	}
	return m.reasoning == x.known[j-1] || itemKind(x.items[j]) == compactionItem
}

// byText stands for the reasoning item of this text where items have no identity of their own.
func byText(reasoning string) string { return "text " + reasoning }

// deepSeekItems wants the text of reasoning, be it empty, before whatever the model said once tools were
// called.
func deepSeekItems(x *exchange) error {
	x.known = make([]string, len(x.items))
	called := slices.ContainsFunc(x.items, func(item members) bool { return itemKind(item) == callItem })
	reasons := false
	for i, item := range x.items {
		switch parts, ok := item.list("content"); {
		case itemKind(item) == reasoningItem:
			reasons = ok && !slices.ContainsFunc(parts, func(p members) bool { return p.kind() != "reasoning_text" })
			x.known[i] = byText(itemText(item, "content"))
		case !answers(item):
			reasons = false
		case called && !reasons && x.Thinking:
			return refused("invalid_request_error", "",
				"The `reasoning_text` in the thinking mode must be passed back to the API.")
		}
	}
	return nil
}

// noteLosses counts what the model thought in the current tool loop and what of it came back, and finds
// compactions that did not.
func noteLosses(x *exchange) {
	seen := map[*given]bool{}
	for i, item := range x.items {
		m := x.server.madeOf(item)
		if m == nil {
			continue
		}
		newer := slices.ContainsFunc(x.items[i:], func(item members) bool { return itemKind(item) == compactionItem })
		if c := m.compaction; c != "" && !newer && !slices.Contains(x.known, c) &&
			!slices.Contains(x.LostCompactions, c) {
			x.LostCompactions = append(x.LostCompactions, c)
		}
		x.reused = i + 1
		if i < x.loop || seen[m.answer] {
			continue
		}
		seen[m.answer] = true
		for _, own := range m.answer.own {
			if slices.Contains(x.known, own) {
				x.Kept++
			} else {
				x.Lost++
			}
		}
	}
}

// itemID is an id as OpenAI makes them.
func itemID(prefix string) string {
	b := make([]byte, 25)
	_, _ = rand.Read(b) // it never fails
	return strings.Join([]string{prefix, fmt.Sprintf("%x", b)}, "_")
}

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

// Encrypted contents begin with "gAAAA", like real ones.
var tokenHead = []byte{0x80, 0, 0, 0, 0}

// encrypt returns the encrypted content of an item, which contains its id and a MAC. Its length depends on the text.
// Any Server of the same name can verify it without memory.
func (s signer) encrypt(kind, id, text string) string {
	b := append(slices.Clone(tokenHead), byte(len(id)))
	b = append(b, id...)
	b = append(b, padding(text)...)
	return base64.URLEncoding.EncodeToString(append(b, s.sum(kind, string(b))...))
}

// decrypt returns the id of the item of an encrypted content. ok is false if this backend did not make it for an item
// of this kind.
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

// encryptedIsOwn verifies every encrypted content and identifies the reasoning items and compactions.
func encryptedIsOwn(x *exchange) error {
	x.origins = make([]string, len(x.items))
	for i, item := range x.items {
		kind := itemKind(item)
		if kind != reasoningItem && kind != compactionItem {
			continue
		}
		id := item.str("id")
		content, ok := item.text("encrypted_content")
		if !ok {
			switch x.origins[i] = id; {
			case i < x.input:
			case id == "":
				return missingParameter(fmt.Sprintf("input[%d].id", i-x.input))
			case x.server.stored(id) == nil:
				return x.notFound(id)
			}
			continue
		}
		x.origins[i], ok = x.server.signer.decrypt(kind, content)
		switch {
		case !ok:
			return x.unverified(id, content, "Encrypted content could not be decrypted or parsed.")
		case id != "" && id != x.origins[i]:
			return x.unverified(id, content, "Encrypted content item_id did not match the target item id.")
		}
		if kind == compactionItem {
			x.compaction = x.origins[i]
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

// pairs are the types of calls and outputs, with OpenAI's words for the calls.
var pairs = []struct{ call, output, word string }{
	{callItem, outputItem, "function call"}, {customItem, customOutputItem, "custom tool call"},
}

// outputsPair requires a call before every output, and an output after every call.
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

// answers reports whether an item is the model's.
func answers(item members) bool {
	switch itemKind(item) {
	case messageItem:
		return item.is("role", assistant)
	case outputItem, customOutputItem, "local_shell_call_output":
		return false
	}
	return true
}

// unitsHold requires an item of its unit after every reasoning item. Items with ids require their reasoning item
// before them.
func unitsHold(x *exchange) error {
	for i, item := range x.items {
		if itemKind(item) == reasoningItem && !x.followed(i) {
			id := item.str("id")
			if id == "" {
				id = x.origins[i]
			}
			return refused("", "input", "Item '"+id+"' of type 'reasoning' was provided without its required following item.")
		}
		id := item.str("id")
		m := x.server.items.get(id)
		if m == nil || m.reasoning == "" || itemKind(item) == reasoningItem || itemKind(item) == compactionItem {
			continue
		}
		preceding := x.origins[:i]
		if m.first {
			preceding = x.origins[max(i-1, 0):i]
		}
		if !slices.Contains(preceding, m.reasoning) {
			return refused("", "input", "Item '"+id+"' of type '"+itemKind(item)+
				"' was provided without its required 'reasoning' item: '"+m.reasoning+"'.")
		}
	}
	return nil
}

// followed reports whether the reasoning item i precedes an item of its own unit or a forgotten item. More reasoning
// may follow it.
func (x *exchange) followed(i int) bool {
	j := i
	for j < len(x.items) && itemKind(x.items[j]) == reasoningItem {
		j++
	}
	if j == len(x.items) || !answers(x.items[j]) {
		return false
	}
	m := x.server.issuedOf(x.items[j])
	if m == nil || x.server.items.get(x.origins[j-1]) == nil {
		return true
	}
	return m.reasoning == x.origins[j-1] || itemKind(x.items[j]) == compactionItem
}

// byText returns the identity of a reasoning item at vendors without ids.
func byText(reasoning string) string { return "text " + reasoning }

// deepSeekItems requires a reasoning text, which may be empty, before every item of the model once tools were called.
func deepSeekItems(x *exchange) error {
	x.origins = make([]string, len(x.items))
	called := slices.ContainsFunc(x.items, func(item members) bool { return itemKind(item) == callItem })
	reasons := false
	for i, item := range x.items {
		switch parts, ok := item.list("content"); {
		case itemKind(item) == reasoningItem:
			reasons = ok && !slices.ContainsFunc(parts, func(p members) bool { return p.kind() != "reasoning_text" })
			x.origins[i] = byText(itemText(item, "content"))
		case !answers(item):
			reasons = false
		case called && !reasons && x.Thinking:
			return refused("invalid_request_error", "",
				"The `reasoning_text` in the thinking mode must be passed back to the API.")
		}
	}
	return nil
}

// countLosses counts the reasoning of the current tool loop that came back or is missing. It also finds missing
// compactions.
func countLosses(x *exchange) {
	visited := map[*answerReasoning]bool{}
	for i, item := range x.items {
		m := x.server.issuedOf(item)
		if m == nil {
			continue
		}
		newer := slices.ContainsFunc(x.items[i:], func(item members) bool { return itemKind(item) == compactionItem })
		if c := m.compaction; c != "" && !newer && !slices.Contains(x.origins, c) &&
			!slices.Contains(x.LostCompactions, c) {
			x.LostCompactions = append(x.LostCompactions, c)
		}
		x.reused = i + 1
		if i < x.loop || visited[m.answer] {
			continue
		}
		visited[m.answer] = true
		for _, own := range m.answer.own {
			if slices.Contains(x.origins, own) {
				x.Returned++
			} else {
				x.Missing++
			}
		}
	}
}

// itemID returns an id in OpenAI's form.
func itemID(prefix string) string {
	b := make([]byte, 25)
	_, _ = rand.Read(b) // it never fails
	return strings.Join([]string{prefix, fmt.Sprintf("%x", b)}, "_")
}

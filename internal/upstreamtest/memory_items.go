package upstreamtest

// issuedItem is an item of an answer of Responses.
type issuedItem struct {
	// reasoning is the id of the reasoning item at the beginning of the unit, or "". first is set if the item directly
	// follows it.
	reasoning string
	first     bool
	// compaction is the newest compaction that the model had received or made before; it may be empty.
	compaction string
	answer     *answerReasoning
	stored     members // the item itself; nil if it is not persisted
}

// answerReasoning is the reasoning of an answer: ids of items, or texts if the vendor has no ids.
type answerReasoning struct{ own []string }

// stored returns the persisted item of this id, or nil.
func (s *Server) stored(id string) members {
	if item := s.items.get(id); item != nil {
		return item.stored
	}
	return nil
}

// issuedOf returns the issued item behind an item of a request, by its id or its call's id. It returns nil if there
// is none.
func (s *Server) issuedOf(item members) *issuedItem {
	if match := s.items.get(item.str("id")); match != nil {
		return match
	}
	if kind := itemKind(item); kind != callItem && kind != customItem {
		return nil
	}
	return s.items.get(item.str("call_id"))
}

package upstreamtest

// made is an item of Responses that was given.
type made struct {
	// reasoning is the reasoning item that its unit begins with, empty for none; first says that it stood
	// right behind it.
	reasoning string
	first     bool
	// compaction is the newest one that the model knew or gave before; empty for none.
	compaction string
	answer     *given
	stored     members // the item itself; nil if it is not persisted
}

// given is the reasoning of an answer that was given as items: ids, or texts where the vendor has those back.
type given struct{ own []string }

// stored is the persisted item of this id, nil if there is none.
func (s *Server) stored(id string) members {
	if item := s.items.get(id); item != nil {
		return item.stored
	}
	return nil
}

// madeOf is what is known of an item of a request, by its id or that of its call.
func (s *Server) madeOf(item members) *made {
	if known := s.items.get(item.str("id")); known != nil {
		return known
	}
	if kind := itemKind(item); kind != callItem && kind != customItem {
		return nil
	}
	return s.items.get(item.str("call_id"))
}

package evaluate

// limit leaves at most n documents: those that are relevant to the first queries, as
// many queries as these take half of the room, and then others in their order. Queries
// whose relevant documents are not all among them go. All ways to rank are measured on
// what is left, so that they compare with each other, and not with the whole set.
func (s *Set) limit(n int) {
	if n <= 0 || len(s.documents) <= n {
		return
	}
	there := map[string]bool{}
	for _, d := range s.documents {
		there[d.ID] = true
	}
	kept := map[string]bool{}
	for _, q := range s.forms[0].queries {
		var wanted []string
		for id, grade := range s.grades[q.id] {
			if grade > 0 && there[id] && !kept[id] {
				wanted = append(wanted, id)
			}
		}
		if len(kept)+len(wanted) > (n+1)/2 && len(kept) > 0 {
			break
		}
		for _, id := range wanted {
			kept[id] = true
		}
	}
	room := n - len(kept)
	documents := s.documents[:0:0]
	for _, d := range s.documents {
		if kept[d.ID] || room > 0 {
			if !kept[d.ID] {
				room--
			}
			documents = append(documents, d)
		}
	}
	s.documents = documents
	kept = map[string]bool{}
	for _, d := range documents {
		kept[d.ID] = true
	}
	for i := range s.forms {
		f := &s.forms[i]
		queries := f.queries[:0:0]
		for _, q := range f.queries {
			if s.complete(q, there, kept) {
				queries = append(queries, q)
			}
		}
		f.queries = queries
	}
}

// complete says whether all relevant documents of a query that were there are kept.
func (s *Set) complete(q query, there, kept map[string]bool) bool {
	some := false
	for id, grade := range s.grades[q.id] {
		if grade > 0 && there[id] {
			if !kept[id] {
				return false
			}
			some = true
		}
	}
	return some
}

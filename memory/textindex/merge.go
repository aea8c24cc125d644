package textindex

// merge makes one segment of parts, without the documents that are not kept.
func merge(parts []part, keep func(s *segment, doc int) bool) *segment {
	w := writer{}
	size, words := 0, 0
	numbers := make([][]int32, len(parts))
	for i, p := range parts {
		size += len(p.lists)
		words = max(words, len(p.terms))
		numbers[i] = w.take(p.segment, keep)
	}
	w.lists = make([]byte, 0, size)
	w.terms.Grow(words)
	heads := make([]int, len(parts)) // the next term of each part
	var l list
	var decoded []posting
	for {
		least, found := "", false
		for i, p := range parts {
			if heads[i] < len(p.starts)-1 {
				if term := p.term(heads[i]); !found || term < least {
					least, found = term, true
				}
			}
		}
		if !found {
			return w.finish()
		}
		l = list{bytes: l.bytes[:0]}
		for i, p := range parts {
			if heads[i] == len(p.starts)-1 || p.term(heads[i]) != least {
				continue
			}
			decoded = p.postings(heads[i]).decode(decoded[:0])
			for _, at := range decoded {
				if number := numbers[i][at.passage]; number >= 0 {
					l.add(number, at.times)
				}
			}
			heads[i]++
		}
		w.write(least, &l)
	}
}

// take adds the documents of a segment and gives the new numbers of its passages,
// -1 for those that are left out.
func (w *writer) take(s *segment, keep func(s *segment, doc int) bool) []int32 {
	numbers := make([]int32, len(s.lengths))
	for doc, d := range s.docs {
		first, end := s.passages(doc)
		kept := keep(s, doc)
		if kept {
			w.docs = append(w.docs, entry{id: d.id, first: int32(len(w.lengths))})
		}
		for passage := first; passage < end; passage++ {
			if !kept {
				numbers[passage] = -1
				continue
			}
			numbers[passage] = int32(len(w.lengths))
			w.passage(s.lengths[passage], s.hashes[passage], s.vector(passage))
		}
	}
	return numbers
}

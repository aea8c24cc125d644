package textindex

import (
	"cmp"
	"hash/fnv"
	"slices"
	"strings"
)

// Whether a result is likely to answer is predicted from the query alone (query performance prediction).
//
// A query's strength is its best score divided by the sum of its terms' idf, each
// by its weight: about 1 when the best passage has all of them, near 0 when it has
// only the commonest. What strength is weak differs from collection to collection,
// so a collection is asked about itself: titles and first sentences of a sample of
// its documents are the questions, and the documents that they are from may not
// answer, since a question is not worded after its answer. A query weaker than all
// but the weakest twentieth of those is weak.
const (
	weakShare = 0.05
	// weakFixed is the least threshold, and that of a collection with fewer
	// documents than weakDocuments, which say too little about it.
	weakFixed     = 0.05
	weakDocuments = 100
	// probes is the size of the sample.
	probes = 64
	// maxProbe bounds the bytes of a title or first sentence.
	maxProbe = 300
)

// probe is a document of the sample.
type probe struct {
	hash      uint64 // of the id; the sample is the documents with the smallest
	id        string
	questions []string
}

// sample is the probes of a collection, ascending by hash.
type sample []probe

func hashID(id string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(id))
	x := h.Sum64() // neighbouring ids have neighbouring hashes
	x = (x ^ x>>32) * 0x9e3779b97f4a7c15
	return x ^ x>>29
}

func (s *sample) find(hash uint64, id string) (int, bool) {
	return slices.BinarySearchFunc(*s, probe{hash: hash, id: id}, func(a, b probe) int {
		return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.id, b.id))
	})
}

// add takes a document in unless the sample is full of smaller ones. The document
// is not in it.
func (s *sample) add(d Document) {
	hash := hashID(d.ID)
	if i, _ := s.find(hash, d.ID); i < probes { // else its questions are not worth the work
		s.insert(probe{hash, strings.Clone(d.ID), questions(d)})
	}
}

// insert takes a probe in as add does its document.
func (s *sample) insert(p probe) {
	if i, _ := s.find(p.hash, p.id); i < probes {
		*s = slices.Insert(*s, i, p)
		*s = (*s)[:min(len(*s), probes)]
	}
}

func (s *sample) remove(id string) {
	if i, ok := s.find(hashID(id), id); ok {
		*s = slices.Delete(*s, i, i+1)
	}
}

// questions are a document's title and its first sentence.
func questions(d Document) []string {
	var list []string
	if title := strings.TrimSpace(d.Title); title != "" {
		list = append(list, strings.Clone(title[:min(len(title), maxProbe)]))
	}
	for _, p := range d.Passages {
		if text := strings.TrimSpace(p.Text); text != "" {
			return append(list, strings.Clone(firstSentence(text)))
		}
	}
	return list
}

// firstSentence is at most maxProbe bytes.
func firstSentence(text string) string {
	text = text[:min(len(text), maxProbe)]
	for i := 1; i < len(text); i++ {
		if text[i] == '\n' || text[i] == ' ' && strings.IndexByte(".!?", text[i-1]) >= 0 {
			return text[:i]
		}
	}
	return text
}

// threshold is the strength below which a query is weak.
func (s *Snapshot) threshold(sample sample) float64 {
	perDoc := make([][]float64, len(sample))
	onAll(len(sample), func(i int) {
		a := anAnalyzer()
		defer analyzers.Put(a)
		for _, q := range sample[i].questions {
			if terms := a.query(q, nil, s.language()); len(terms) > 0 {
				perDoc[i] = append(perDoc[i], s.strengthWithout(sample[i].id, terms))
			}
		}
	})
	strengths := slices.Concat(perDoc...)
	if len(strengths) == 0 {
		return weakFixed
	}
	slices.Sort(strengths)
	return max(weakFixed, strengths[int(weakShare*float64(len(strengths)))])
}

// strengthWithout is the strength of a query that a document may not answer.
func (s *Snapshot) strengthWithout(id string, terms []term) float64 {
	r := s.score(s.look(terms), s.dead(), 0, 0)
	defer r.release()
	best := 0.0
	for _, i := range r.scored {
		if score := r.scores[i]; score > best && s.hit(int(i), score).Document != id {
			best = score
		}
	}
	return best / r.most
}

package textindex

import (
	"runtime"
	"slices"
)

// Prepared is documents that are analysed and can be put by a Change. Preparing is
// what takes time, and needs nothing of the collection: many can do it at once.
type Prepared struct {
	segments  []*segment
	probes    sample
	documents int
}

// Prepare analyses documents of different ids, on one processor.
func (c *Collection) Prepare(documents []Document) *Prepared {
	p := &Prepared{documents: len(documents)}
	for _, b := range batch(documents, perSegment) {
		p.segments = append(p.segments, c.segment(b))
	}
	for _, d := range documents {
		p.probes.add(d)
	}
	return p
}

// mergeFresh makes few segments of many in which every document is live and stands
// once, in their order and on all processors: in one pass, where merging them as
// changes come would take one for each size.
func mergeFresh(segments []*segment) []*segment {
	if len(segments) < fanout {
		return segments
	}
	groups := groupFresh(segments, min(runtime.GOMAXPROCS(0), fanout-1))
	merged := make([]*segment, len(groups))
	onAll(len(groups), func(i int) {
		parts := make([]part, len(groups[i]))
		for k, s := range groups[i] {
			parts[k] = part{segment: s}
		}
		merged[i] = merge(parts, func(*segment, int) bool { return true })
	})
	return merged
}

// groupFresh cuts segments into at least as many runs, of about equal size and none
// larger than a segment may be.
func groupFresh(segments []*segment, runs int) (groups [][]*segment) {
	total := 0
	for _, s := range segments {
		total += len(s.lists)
	}
	most := min(total/runs+1, maxSegment)
	size := most // so that the first begins a run
	for _, s := range segments {
		if size >= most {
			groups, size = append(groups, nil), 0
		}
		last := len(groups) - 1
		groups[last] = append(groups[last], s)
		size += len(s.lists)
	}
	return slices.Clip(groups)
}

package loader

import (
	"bytes"
	"cmp"
	"compress/zlib"
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

const (
	// pdfValues is how many values all objects of a PDF may have together.
	pdfValues = 2_000_000
	// pdfColumns is the widest row of a predictor that is undone.
	pdfColumns = 1 << 16
	// pdfLargest is the largest number that is written; what is larger measures
	// nothing on a page.
	pdfLargest = 1e12
)

// pdfObject is one object as it was found in the file.
type pdfObject struct {
	id     int
	at     int // where in the file; a later object of the same number replaces it
	value  any
	stream []byte
	packed bool // it has a stream
}

// pdfObjects are what could be found of a PDF without believing its tables.
type pdfObjects struct {
	ctx       context.Context
	byID      map[int]*pdfObject
	root      any // the catalog
	info      any // the file's own title
	encrypted bool
	budget    int   // values
	unpacked  int64 // bytes that may still be unpacked
}

// scanPDF finds the objects by their own marks. The cross-reference tables are
// left aside: in broken files they are wrong, and in hostile ones they ask for
// endless memory or recursion of a reader that trusts them.
func scanPDF(ctx context.Context, data []byte, unpacked int64) (*pdfObjects, error) {
	o := &pdfObjects{ctx: ctx, byID: map[int]*pdfObject{}, budget: pdfValues, unpacked: unpacked}
	wasted := 0
	for at := 0; ; {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		next := bytes.IndexAny(data[at:], "ot") // obj, trailer
		if next < 0 {
			break
		}
		at += next
		switch {
		case bytes.HasPrefix(data[at:], []byte("obj")):
			end, err := o.object(data, at)
			if errors.Is(err, errPDFBudget) {
				return nil, refuse(TooLarge, "the PDF has more than %d values", pdfValues)
			}
			if err != nil {
				// What was read in vain must not be read again and again.
				if wasted += end - at; wasted > 4*len(data)+1<<20 {
					return nil, damaged(labelPDF, err)
				}
				end = at + 3
			}
			at = end
		case bytes.HasPrefix(data[at:], []byte("trailer")):
			at += len("trailer")
			p := pdfParser{data: data[:min(len(data), at+1<<16)], pos: at, budget: 10_000, refs: true}
			if v, err := p.value(0); err == nil {
				o.trailer(v)
			}
		default:
			at++
		}
	}
	return o, o.unpack()
}

// object reads the object whose keyword is at at, and says where it ends, or
// where reading it failed.
func (o *pdfObjects) object(data []byte, at int) (end int, err error) {
	id, ok := idBefore(data[:at])
	if !ok {
		return at + 3, nil
	}
	p := pdfParser{data: data, pos: at + 3, budget: o.budget, refs: true}
	v, err := p.value(0)
	o.budget = p.budget
	if err != nil {
		return p.pos, err
	}
	found := &pdfObject{id: id, at: at, value: v}
	if d, ok := v.(pdfDict); ok {
		if p.skip(); bytes.HasPrefix(data[p.pos:], []byte("stream")) {
			found.packed = true
			found.stream, p.pos = streamAt(data, p.pos+len("stream"), d["Length"])
		}
		if d["Type"] == pdfName("XRef") {
			o.trailer(d)
		}
	}
	o.byID[id] = found
	return p.pos, nil
}

// idBefore reads the "12 0" before an object's keyword.
func idBefore(data []byte) (id int, ok bool) {
	tail := strings.TrimRight(string(data[max(0, len(data)-32):]), "\x00\t\n\f\r ")
	fields := strings.FieldsFunc(tail, func(r rune) bool { return r < 0x80 && !(r >= '0' && r <= '9') })
	if len(fields) < 2 || !strings.HasSuffix(tail, fields[len(fields)-1]) {
		return 0, false
	}
	id, err := strconv.Atoi(fields[len(fields)-2])
	return id, err == nil && id > 0 && id < 1<<31
}

// streamAt gives the data of a stream whose keyword ends at at, and where it
// ends: where its length says if that is right, else before the next endstream.
func streamAt(data []byte, at int, length any) (stream []byte, end int) {
	if bytes.HasPrefix(data[at:], []byte("\r\n")) {
		at += 2
	} else if at < len(data) && (data[at] == '\n' || data[at] == '\r') {
		at++
	}
	if n, ok := length.(float64); ok && n >= 0 && n <= float64(len(data)-at) {
		end = at + int(n)
		if bytes.HasPrefix(bytes.TrimLeft(data[end:min(len(data), end+16)], "\r\n "), []byte("endstream")) {
			return data[at:end], end
		}
	}
	n := bytes.Index(data[at:], []byte("endstream"))
	if n < 0 {
		return data[at:], len(data)
	}
	return bytes.TrimRight(data[at:at+n], "\r\n"), at + n
}

// trailer takes from a trailer what is to know; the last one with a root wins.
func (o *pdfObjects) trailer(v any) {
	d, _ := v.(pdfDict)
	if d["Root"] != nil {
		o.root = d["Root"]
	}
	if d["Info"] != nil {
		o.info = d["Info"]
	}
	if d["Encrypt"] != nil {
		o.encrypted = true
	}
}

// resolve follows references, a few steps of them.
func (o *pdfObjects) resolve(v any) any {
	for range 8 {
		ref, ok := v.(pdfRef)
		if !ok {
			return v
		}
		found := o.byID[int(ref)]
		if found == nil {
			return nil
		}
		v = found.value
	}
	return nil
}

// unpack takes the objects out of object streams.
func (o *pdfObjects) unpack() error {
	if o.encrypted {
		return nil
	}
	for _, container := range o.sorted() {
		d, _ := container.value.(pdfDict)
		if !container.packed || o.resolve(d["Type"]) != pdfName("ObjStm") {
			continue
		}
		if o.ctx.Err() != nil {
			return context.Cause(o.ctx)
		}
		if filter := o.filters(d); len(filter) > 1 || len(filter) == 1 && filter[0] != "FlateDecode" {
			continue
		}
		data := container.stream
		if len(o.filters(d)) == 1 {
			var err error
			if data, err = inflate(data, &o.unpacked); err != nil {
				return err
			}
		}
		if err := o.members(container, d, data); err != nil {
			return err
		}
	}
	return nil
}

func (o *pdfObjects) sorted() []*pdfObject {
	return slices.SortedFunc(maps.Values(o.byID), func(a, b *pdfObject) int { return cmp.Compare(a.at, b.at) })
}

// members reads the objects of an object stream.
func (o *pdfObjects) members(container *pdfObject, d pdfDict, data []byte) error {
	first, _ := o.resolve(d["First"]).(float64)
	head := pdfParser{data: data, budget: o.budget}
	for range len(data) {
		id, err1 := head.value(0)
		offset, err2 := head.value(0)
		number, ok1 := id.(float64)
		start, ok2 := offset.(float64)
		if at := first + start; err1 == nil && err2 == nil && ok1 && ok2 && at >= 0 && at < float64(len(data)) && float64(head.pos) <= first+1 {
			p := pdfParser{data: data, pos: int(at), budget: head.budget, refs: true}
			v, err := p.value(0)
			if head.budget = p.budget; err == nil && (o.byID[int(number)] == nil || o.byID[int(number)].at <= container.at) {
				o.byID[int(number)] = &pdfObject{id: int(number), at: container.at, value: v}
			}
			if !errors.Is(err, errPDFBudget) {
				continue
			}
		}
		break
	}
	if o.budget = head.budget; o.budget < 0 {
		return refuse(TooLarge, "the PDF has more than %d values", pdfValues)
	}
	return nil
}

// inflate unpacks at most *left bytes and takes them off. Data that breaks off
// gives what there is of it.
func inflate(data []byte, left *int64) ([]byte, error) {
	z, err := zlib.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, nil
	}
	out, _ := io.ReadAll(io.LimitReader(z, *left+1))
	if *left -= int64(len(out)); *left < 0 {
		return nil, refuse(TooLarge, "the PDF unpacks to far more than its size")
	}
	return out, nil
}

// filters are the names of a stream's filters.
func (o *pdfObjects) filters(d pdfDict) []pdfName {
	switch f := o.resolve(d["Filter"]).(type) {
	case pdfName:
		return []pdfName{f}
	case []any:
		var names []pdfName
		for _, v := range f {
			name, _ := o.resolve(v).(pdfName)
			names = append(names, name)
		}
		return names
	}
	return nil
}

// needless are streams that hold no text: pictures, fonts, and what unpack read.
func (o *pdfObjects) needless(found *pdfObject) bool {
	d, _ := found.value.(pdfDict)
	kind := o.resolve(d["Type"])
	return found.packed && (o.resolve(d["Subtype"]) == pdfName("Image") || kind == pdfName("ObjStm") ||
		kind == pdfName("XRef") || kind == pdfName("Metadata") || d["Length1"] != nil || len(o.filters(d)) > 4)
}

// rebuild writes the objects as a new, plain PDF: one table, no object streams,
// nothing encrypted, lengths and filters in their places.
func (o *pdfObjects) rebuild() ([]byte, error) {
	all := slices.DeleteFunc(o.sorted(), o.needless)
	w := pdfWriter{pdfObjects: o, ids: map[int]int{}}
	for i, found := range all {
		w.ids[found.id] = i + 1
	}
	root, ok := o.resolve(o.root).(pdfDict)
	if !ok || o.resolve(root["Pages"]) == nil {
		root = o.newRoot(all)
	}
	w.WriteString("%PDF-1.7\n")
	var offsets []int
	for i, found := range all {
		if o.ctx.Err() != nil {
			return nil, context.Cause(o.ctx)
		}
		offsets = append(offsets, w.Len())
		w.WriteString(strconv.Itoa(i+1) + " 0 obj\n")
		w.object(found)
		w.WriteString("\nendobj\n")
	}
	offsets = append(offsets, w.Len())
	w.WriteString(strconv.Itoa(len(all)+1) + " 0 obj\n")
	w.value(root)
	w.WriteString("\nendobj\n")
	table := w.Len()
	w.WriteString("xref\n0 " + strconv.Itoa(len(offsets)+1) + "\n0000000000 65535 f \n")
	for _, at := range offsets {
		digits := strconv.Itoa(at)
		w.WriteString(strings.Repeat("0", max(0, 10-len(digits))) + digits + " 00000 n \n")
	}
	w.WriteString("trailer\n<</Size " + strconv.Itoa(len(offsets)+1) + "/Root " + strconv.Itoa(len(offsets)) + " 0 R/Info ")
	w.value(o.resolve(o.info))
	w.WriteString(">>\nstartxref\n" + strconv.Itoa(table) + "\n%%EOF\n")
	return w.Bytes(), nil
}

// newRoot makes a catalog of the pages of a file that has lost its own.
func (o *pdfObjects) newRoot(all []*pdfObject) pdfDict {
	var pages []any
	for _, found := range all {
		if d, ok := found.value.(pdfDict); ok && o.resolve(d["Type"]) == pdfName("Page") {
			pages = append(pages, pdfRef(found.id))
		}
	}
	return pdfDict{"Type": pdfName("Catalog"), "Pages": pdfDict{"Type": pdfName("Pages"), "Kids": pages}}
}

// pdfWriter writes values.
type pdfWriter struct {
	*pdfObjects
	bytes.Buffer
	ids map[int]int // the new numbers by the old ones
}

func (w *pdfWriter) object(found *pdfObject) {
	d, ok := found.value.(pdfDict)
	if !found.packed || !ok {
		w.value(found.value)
		return
	}
	stream := found.stream
	var filters, parameters []any
	for i, name := range w.filters(d) {
		p, fine := w.parameters(d, i)
		if !fine {
			stream, filters, parameters = nil, nil, nil
			break
		}
		filters, parameters = append(filters, name), append(parameters, p)
	}
	d = maps.Clone(d)
	delete(d, "Filter")
	delete(d, "DecodeParms")
	if len(filters) > 0 {
		d["Filter"], d["DecodeParms"] = filters, parameters
	}
	d["Length"] = float64(len(stream))
	w.value(d)
	w.WriteString("\nstream\n")
	w.Write(stream)
	w.WriteString("\nendstream")
}

// parameters are those of the i-th filter that its reader knows; fine is false
// if they ask for too much.
func (w *pdfWriter) parameters(d pdfDict, i int) (p any, fine bool) {
	v := w.resolve(d["DecodeParms"])
	if list, ok := v.([]any); ok {
		if v = nil; i < len(list) {
			v = w.resolve(list[i])
		}
	}
	parameters, _ := v.(pdfDict)
	predictor, _ := w.resolve(parameters["Predictor"]).(float64)
	columns, _ := w.resolve(parameters["Columns"]).(float64)
	switch {
	case columns < 0 || columns > pdfColumns:
		return nil, false
	case predictor <= 1:
		return nil, true
	}
	return pdfDict{"Predictor": predictor, "Columns": max(columns, 1)}, true
}

func (w *pdfWriter) value(v any) {
	switch v := v.(type) {
	case bool:
		w.WriteString(strconv.FormatBool(v))
	case float64:
		w.WriteString(strconv.FormatFloat(max(-pdfLargest, min(v, pdfLargest)), 'f', -1, 64))
	case pdfString:
		w.WriteString("<")
		for _, c := range []byte(v) {
			w.WriteString(hexByte(c))
		}
		w.WriteString(">")
	case pdfName:
		w.name(v)
	case pdfRef:
		if id := w.ids[int(v)]; id > 0 {
			w.WriteString(strconv.Itoa(id) + " 0 R")
			return
		}
		w.WriteString("null")
	case []any:
		w.WriteString("[")
		for _, item := range v {
			w.value(item)
			w.WriteString(" ")
		}
		w.WriteString("]")
	case pdfDict:
		w.WriteString("<<")
		for _, key := range slices.Sorted(maps.Keys(v)) {
			w.name(key)
			w.WriteString(" ")
			w.value(v[key])
			w.WriteString(" ")
		}
		w.WriteString(">>")
	default:
		w.WriteString("null")
	}
}

func (w *pdfWriter) name(n pdfName) {
	w.WriteString("/")
	for _, c := range []byte(n) {
		if c <= ' ' || c >= 0x7f || c == '#' || pdfDelimiter(c) {
			w.WriteString("#" + hexByte(c))
		} else {
			w.WriteByte(c)
		}
	}
}

func hexByte(c byte) string {
	return string("0123456789abcdef"[c>>4]) + string("0123456789abcdef"[c&15])
}

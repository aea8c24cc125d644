package loader

import (
	"slices"
	"strconv"
	"strings"
)

// headerRows is how many rows are looked at to find the one that names the columns.
const headerRows = 20

// rowWriter writes the rows of a table as blocks of "column: value" lines, each
// of them understood alone. Above the row that names the columns there may be a
// few others, as a title or a date.
type rowWriter struct {
	b       *builder
	first   []sheetRow // rows that wait for the decision
	columns []string
	decided bool
	rows    int
	hidden  map[int]bool // columns, from 0, and whether one held something
}

// sheetRow is a row. spans reports whether a cell spans others, alone whether one spans all.
type sheetRow struct {
	values        []string
	spans, single bool
}

// row takes the cells of a row.
func (w *rowWriter) row(cells []cell) {
	if text, ok := singleText(cells); ok {
		w.add(sheetRow{values: []string{text}, single: true})
		return
	}
	values := dense(cells)
	for column := range w.hidden {
		if column < len(values) && values[column] != "" {
			w.hidden[column], values[column] = true, ""
		}
	}
	w.add(sheetRow{values: values, spans: spread(cells)})
}

// add takes a row. The caller may reuse its values.
func (w *rowWriter) add(row sheetRow) {
	length := 0
	for _, value := range row.values {
		length += len(value)
	}
	if !w.b.room(length) || filled(row.values) == 0 {
		return
	}
	if w.rows++; w.rows > w.b.limits.Rows+1 { // one names the columns
		w.b.fail(refuse(TooLarge, "the file has more than %d rows", w.b.limits.Rows))
		return
	}
	if w.decided {
		w.write(row)
		return
	}
	row.values = slices.Clone(row.values)
	if w.first = append(w.first, row); len(w.first) == headerRows {
		w.end()
	}
}

// end writes the rows that wait.
func (w *rowWriter) end() {
	rows := w.first
	w.first, w.decided = nil, true
	header, count := headerOf(rows)
	if header+count >= len(rows) || len(rows) == 1 {
		header, count = len(rows), 0 // names of nothing are text, as is a single row
	}
	for i, row := range rows {
		switch {
		case i < header:
			w.b.paragraph(plainRow(row.values))
		case i < header+count:
			w.columns = joinNames(w.columns, row.values)
		default:
			w.write(row)
		}
	}
}

func (w *rowWriter) write(row sheetRow) {
	if row.single {
		w.b.paragraph(plainRow(row.values))
	} else {
		w.b.paragraph(rowText(w.columns, row.values))
	}
}

// close ends the table and counts its hidden columns.
func (w *rowWriter) close() {
	w.end()
	for _, used := range w.hidden {
		if used {
			w.b.skip("hidden columns", 1)
		}
	}
}

// joinNames joins the names of columns with the names in the next header row.
func joinNames(names, row []string) []string {
	result := append(slices.Clone(names), make([]string, max(0, len(row)-len(names)))...)
	for i, part := range row {
		if part = oneLine(part); part != result[i] {
			result[i] = strings.TrimSpace(result[i] + " " + part)
		}
	}
	return result
}

// specifies reports whether a row may be a header row under names. It must not change a name of a single column.
func specifies(row, names []string) bool {
	for i, name := range names {
		several := i > 0 && names[i-1] == name || i+1 < len(names) && names[i+1] == name
		if isNumber(name) || name != "" && !several && i < len(row) && filled(row[i:i+1]) > 0 && oneLine(row[i]) != name {
			return false
		}
	}
	return true
}

// filled is how many of a row's values are not empty.
func filled(record []string) (n int) {
	for _, value := range record {
		if strings.TrimSpace(value) != "" {
			n++
		}
	}
	return n
}

// mostFrequent is the value that occurs most often, of equals the largest, and how often.
func mostFrequent(values []int) (value, times int) {
	counts := map[int]int{}
	for _, v := range values {
		counts[v]++
		if n := counts[v]; n > times || n == times && v > value {
			value, times = v, n
		}
	}
	return value, times
}

// headerOf returns the index and the number of the header rows; -1 and 0 without one. The first header row has
// about as many values as most rows.
func headerOf(rows []sheetRow) (index, count int) {
	var values []int
	for _, row := range rows {
		values = append(values, filled(row.values))
	}
	usual, _ := mostFrequent(values)
	for i, row := range rows {
		// Single values above a table of several columns are its title.
		if n := filled(row.values); n*2 <= usual || n == 1 && usual != 1 {
			continue
		}
		rest := rows[i+1:]
		names := joinNames(nil, row.values)
		for k := 0; k < min(len(rest), mostHeader) && row.spans && specifies(rest[k].values, names); k++ {
			if names = joinNames(names, rest[k].values); isHeader(names) {
				return i, k + 2
			}
		}
		if isHeader(row.values) || len(rest) > 0 && isYears(row.values, rest[0].values) || namesTwice(row.values, rest) {
			return i, 1
		}
		break
	}
	return -1, 0
}

// namesTwice reports whether a row is a header with repeated names. A value that its column repeats below does not count as a name.
func namesTwice(record []string, rows []sheetRow) bool {
	var names []string
	unique := map[string]bool{}
	for i, name := range joinNames(nil, record) {
		if !unique[name] {
			names, unique[name] = append(names, name), true
			continue
		}
		for _, row := range rows {
			if i < len(row.values) && oneLine(row.values[i]) == name {
				return false
			}
		}
	}
	return len(names)*2 > len(record) && isHeader(names)
}

// plainRow is a row of no table.
func plainRow(record []string) string {
	var values []string
	for _, value := range record {
		if value = oneLine(value); value != "" {
			values = append(values, value)
		}
	}
	return strings.Join(values, " ")
}

// rowText writes a row's values that are not empty, each after its column.
func rowText(columns, record []string) string {
	var out strings.Builder
	for i, value := range record {
		value = strings.TrimSpace(value)
		if value == "" {
			continue
		}
		name := "column " + strconv.Itoa(i+1)
		if i < len(columns) && columns[i] != "" {
			name = columns[i]
		}
		out.WriteString(name + ": ")
		for line := range strings.Lines(value) {
			// A blank line would end the row for a reader of the text.
			if strings.TrimSpace(line) != "" {
				out.WriteString(line)
			}
		}
		out.WriteByte('\n')
	}
	return out.String()
}

// isHeader says whether a row names columns: short, different words, no numbers.
func isHeader(record []string) bool {
	unique := map[string]bool{}
	count := 0
	for _, name := range record {
		name = strings.ToLower(strings.TrimSpace(name))
		if name == "" {
			continue
		}
		// A name with a colon is that of the value beside it.
		if isNumber(name) || unique[name] || len(name) > 200 || strings.HasSuffix(name, ":") {
			return false
		}
		unique[name] = true
		count++
	}
	return count*2 > len(record)
}

func isNumber(value string) bool {
	_, err := strconv.ParseFloat(strings.Replace(value, ",", ".", 1), 64)
	return err == nil
}

// isYears says whether a row names columns by years: all its numbers are years,
// and below them is something else.
func isYears(record, nextRow []string) bool {
	var names []string
	years := 0
	for i, name := range record {
		name = strings.TrimSpace(name)
		year, err := strconv.Atoi(name)
		switch {
		case err != nil || year < 1900 || year > 2100:
			names = append(names, name)
			continue
		case i < len(nextRow) && len(strings.TrimSpace(nextRow[i])) == len(name) && isYears(nextRow[i:i+1], nil):
			return false
		}
		years++
		names = append(names, "year "+name)
	}
	return years > 0 && isHeader(names)
}

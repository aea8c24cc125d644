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
	first   [][]string // rows that wait for the decision
	columns []string
	decided bool
	rows    int
}

// add takes a row; the slice may be used again.
func (w *rowWriter) add(record []string) {
	length := 0
	for _, value := range record {
		length += len(value)
	}
	if !w.b.room(length) || filled(record) == 0 {
		return
	}
	if w.rows++; w.rows > w.b.limits.Rows+1 { // one names the columns
		w.b.fail(refuse(TooLarge, "the file has more than %d rows", w.b.limits.Rows))
		return
	}
	if w.decided {
		w.b.paragraph(rowText(w.columns, record))
		return
	}
	if w.first = append(w.first, slices.Clone(record)); len(w.first) == headerRows {
		w.end()
	}
}

// end writes the rows that wait.
func (w *rowWriter) end() {
	rows := w.first
	w.first, w.decided = nil, true
	header := headerOf(rows)
	if header == len(rows)-1 || len(rows) == 1 {
		header = len(rows) // names of nothing are text, as is a single row
	}
	for i, row := range rows {
		switch {
		case i < header:
			w.b.paragraph(plainRow(row))
		case i == header:
			for _, name := range row {
				w.columns = append(w.columns, oneLine(name))
			}
		default:
			w.b.paragraph(rowText(w.columns, row))
		}
	}
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

// headerOf is the place of the row that names the columns among the first ones, -1
// if there is none: the first that has about as many values as most rows.
func headerOf(rows [][]string) int {
	var values []int
	for _, row := range rows {
		values = append(values, filled(row))
	}
	usual, _ := mostFrequent(values)
	for i, row := range rows {
		// Single values above a table of several columns are its title.
		if n := filled(row); n*2 > usual && (n > 1 || usual == 1) {
			if !isHeader(row) && !(i+1 < len(rows) && isYears(row, rows[i+1])) {
				return -1
			}
			return i
		}
	}
	return -1
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
	seen := map[string]bool{}
	named := 0
	for _, name := range record {
		name = strings.ToLower(strings.TrimSpace(name))
		if name == "" {
			continue
		}
		// A name with a colon is that of the value beside it.
		if isNumber(name) || seen[name] || len(name) > 200 || strings.HasSuffix(name, ":") {
			return false
		}
		seen[name] = true
		named++
	}
	return named*2 > len(record)
}

func isNumber(value string) bool {
	_, err := strconv.ParseFloat(strings.Replace(value, ",", ".", 1), 64)
	return err == nil
}

// isYears says whether a row names columns by years: all its numbers are years,
// and below them is something else.
func isYears(record, below []string) bool {
	var names []string
	years := 0
	for i, name := range record {
		name = strings.TrimSpace(name)
		year, err := strconv.Atoi(name)
		switch {
		case err != nil || year < 1900 || year > 2100:
			names = append(names, name)
			continue
		case i < len(below) && len(strings.TrimSpace(below[i])) == len(name) && isYears(below[i:i+1], nil):
			return false
		}
		years++
		names = append(names, "year "+name)
	}
	return years > 0 && isHeader(names)
}

package loader

import (
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// Limits of a table.
const (
	mostColumns = 16_384
	mostRows    = 1 << 20
	// mostFilled bounds the cells of a table that are repeated in the rows below them.
	mostFilled = 1 << 20
	// mostCells bounds all cells of a table.
	mostCells = 2 << 20
	// mostHeader bounds the header rows.
	mostHeader = 5
	// wholeTable is the largest table in one block, tableBlock the size of the blocks of a longer one, in characters.
	// Both fit into a passage.
	wholeTable, tableBlock = 1800, 1400
)

// cell is a cell of a table. Columns and rows count from 0.
type cell struct {
	text           string
	column, across int
	first, last    int  // rows
	joined         bool // it only continues the cell above
}

// table collects the cells of a table, and fills the cells that others span. The zero value is an empty table.
type table struct {
	rows   [][]cell
	header int // rows that name the columns, if the file says so

	cells, open []cell // of the row; of rows above, which span the row
	next        int    // of open
	row, column int
	count       int // cells of the row
	total       int // cells of all rows
	filled      int // of them, from rows above
	size        int // of the rows, in bytes
}

// cover adds the cells from rows above that begin up to a column.
func (t *table) cover(column int) {
	for ; t.next < len(t.open) && t.open[t.next].column <= max(column, t.column); t.next++ {
		if c := t.open[t.next]; c.last >= t.row && c.column >= t.column {
			t.add(c)
			t.filled++
		}
	}
}

func (t *table) add(c cell) {
	if t.count++; t.count <= mostCells {
		t.cells, t.column = append(t.cells, c), c.column+c.across
	}
}

// cell adds a cell at the next free column.
func (t *table) cell(text string, across, down int) {
	t.cover(t.column)
	c := cell{text: text, column: t.column, across: min(max(across, 1), mostColumns), first: t.row,
		last: t.row + min(max(down, 1), mostRows) - 1}
	if t.next < len(t.open) { // cells do not overlap
		c.across = min(c.across, t.open[t.next].column-c.column)
	}
	t.add(c)
}

// cellAt adds a cell at a column, unless another cell spans it.
func (t *table) cellAt(column int, text string, across, down int) {
	if t.cover(column - 1); t.column <= column {
		t.column = column
		t.cell(text, across, down)
	}
}

// join adds a cell that continues the cell to its left or above it.
func (t *table) join(vertical bool, across int) {
	t.cover(t.column)
	n := len(t.cells) - 1
	if !vertical && n >= 0 {
		t.cells[n].across += across
		t.column += across
		return
	}
	text := ""
	if len(t.rows) > 0 && vertical {
		previous := t.rows[len(t.rows)-1]
		i, _ := slices.BinarySearchFunc(previous, t.column+1, func(c cell, end int) int { return c.column + c.across - end })
		if i < len(previous) && previous[i].column <= t.column {
			text = previous[i].text
		}
	}
	t.cell(text, across, 1)
	if n := len(t.cells) - 1; n >= 0 && vertical {
		t.cells[n].joined = true
	}
}

// takeRow ends the row and returns its cells, nil if all its own cells are empty.
func (t *table) takeRow() []cell {
	if len(t.cells) == 0 && t.column == 0 { // costs nothing, however much is open
		t.row++
		return nil
	}
	t.cover(math.MaxInt)
	cells, row := t.cells, t.row
	t.total, t.count = t.total+t.count, 0
	t.open = slices.DeleteFunc(slices.Clone(cells), func(c cell) bool { return c.last <= row || t.filled > mostFilled })
	t.cells, t.next, t.column, t.row = nil, 0, 0, row+1
	for _, c := range cells {
		if c.first == row && !c.joined && strings.TrimSpace(c.text) != "" {
			return cells
		}
	}
	return nil
}

// endRow ends a row, which may be a header. It drops a row without text.
func (b *builder) endRow(t *table, header bool) {
	if cells := t.takeRow(); cells != nil {
		if header && t.header == len(t.rows) {
			t.header++
		}
		for i := range cells {
			cells[i].text = oneLine(cells[i].text)
			t.size += len(cells[i].text) + len(" | ")
		}
		t.rows = append(t.rows, cells)
	}
	if b.room(t.size); t.total > mostCells {
		b.fail(refuse(TooLarge, "the file has a table of more than %d cells", mostCells))
	}
}

// singleText returns the text of a row with one text that spans columns.
func singleText(cells []cell) (text string, ok bool) {
	for _, c := range cells {
		switch {
		case strings.TrimSpace(c.text) == "":
		case text != "" || c.across == 1:
			return "", false
		default:
			text = c.text
		}
	}
	return text, text != ""
}

// spread reports whether a cell of a row spans others.
func spread(cells []cell) bool {
	return slices.ContainsFunc(cells, func(c cell) bool { return c.across > 1 || c.last > c.first })
}

// dense returns a row's values by column.
func dense(cells []cell) (values []string) {
	for _, c := range cells {
		if c.text == "" || c.column >= mostColumns {
			continue
		}
		values = append(values, make([]string, c.column-len(values))...)
		for range min(c.across, mostColumns-c.column) {
			values = append(values, c.text)
		}
	}
	return values
}

// headerRows returns the number of header rows: the first row, and the next one while the last has spans.
func (t *table) headerRows() int {
	if t.header > 0 {
		return min(t.header, mostHeader)
	}
	rows := 1
	for rows < min(len(t.rows)-1, mostHeader) && spread(t.rows[rows-1]) {
		rows++
	}
	return rows
}

// lines writes the rows. Columns without the beginning of a cell are left out.
func (t *table) lines(b *builder) (lines []string) {
	var columns []int
	for _, row := range t.rows {
		for _, c := range row {
			if !c.joined {
				columns = append(columns, c.column)
			}
		}
	}
	slices.Sort(columns)
	columns = slices.Compact(columns)
	size := 0
	for _, row := range t.rows {
		var out strings.Builder
		out.WriteByte('|')
		text, single := singleText(row)
		i := 0
		for _, column := range columns {
			for i < len(row) && row[i].column+row[i].across <= column {
				i++
			}
			if i == len(row) || single && out.Len() > 1 {
				break
			}
			if !single {
				text = ""
				if row[i].column <= column {
					text = row[i].text
				}
			}
			out.WriteString(" " + text + " |")
		}
		if size += out.Len(); !b.room(size) {
			return nil
		}
		lines = append(lines, out.String())
	}
	return lines
}

// tableBlocks ends the table and returns its text. A long table has several blocks, each with the header.
func (b *builder) tableBlocks(t *table) (blocks []string) {
	lines, count, length := t.lines(b), t.headerRows(), 0
	*t = table{}
	for _, line := range lines {
		length += utf8.RuneCountInString(line) + 1
	}
	if length <= wholeTable {
		return []string{strings.Join(lines, "\n")}
	}
	count = min(count, len(lines))
	header := strings.Join(lines[:count], "\n")
	size := utf8.RuneCountInString(header)
	if size > tableBlock/2 { // too long to be repeated
		header, size, count = lines[0], utf8.RuneCountInString(lines[0]), 1
	}
	first, room := 0, size
	for i := count; i < len(lines); i++ {
		length := utf8.RuneCountInString(lines[i]) + 1
		if room += length; room <= tableBlock || i == max(first, count) {
			continue
		}
		blocks = append(blocks, strings.Join(lines[first:i], "\n"))
		if first, room = i, size+length; size <= tableBlock/2 {
			lines[i] = header + "\n" + lines[i]
		}
	}
	return append(blocks, strings.Join(lines[first:], "\n"))
}

// endTable writes a table.
func (b *builder) endTable(t *table) {
	for _, block := range b.tableBlocks(t) {
		b.addBlock(block)
	}
}

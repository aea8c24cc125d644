package loader

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/subagent/rag/chunk"
)

// spanned is a cell of a test's table. Zero spans are 1.
type spanned struct {
	text         string
	across, down int
}

func plainCells(texts ...string) (row []spanned) {
	for _, text := range texts {
		row = append(row, spanned{text: text})
	}
	return row
}

// tableCases are tables, and what formats make of them: lines, or "column: value" for sheets.
var tableCases = []struct {
	name        string
	spans       bool
	rows        [][]spanned
	text, sheet string
}{
	{"plain", false, [][]spanned{plainCells("Item", "Price"), plainCells("Tent", "5"), plainCells("Canoe", "6")},
		"| Item | Price | | Tent | 5 | | Canoe | 6 |", "Item: Tent Price: 5 Item: Canoe Price: 6"},
	{"across", true, [][]spanned{plainCells("Item", "Size", "Price"), plainCells("Tent", "small", "5"),
		{{"All sizes", 2, 1}, {"7 euros", 1, 1}}},
		"| Item | Size | Price | | Tent | small | 5 | | All sizes | All sizes | 7 euros |",
		"Item: Tent Size: small Price: 5 Item: All sizes Size: All sizes Price: 7 euros"},
	{"down", true, [][]spanned{plainCells("Region", "Item", "Price"), {{"North", 1, 2}, {"Apples", 1, 1}, {"5", 1, 1}},
		plainCells("Pears", "7")},
		"| Region | Item | Price | | North | Apples | 5 | | North | Pears | 7 |",
		"Region: North Item: Apples Price: 5 Region: North Item: Pears Price: 7"},
	{"down at the end", true, [][]spanned{plainCells("Item", "Price", "Note"), {{"Apples", 1, 1}, {"5", 1, 1}, {"new", 1, 2}},
		plainCells("Pears", "7")},
		"| Item | Price | Note | | Apples | 5 | new | | Pears | 7 | new |",
		"Item: Apples Price: 5 Note: new Item: Pears Price: 7 Note: new"},
	{"both", true, [][]spanned{plainCells("Day", "Morning", "Evening"), {{"Mon", 1, 1}, {"closed", 2, 2}}, plainCells("Tue"),
		plainCells("Wed", "a", "b")},
		"| Day | Morning | Evening | | Mon | closed | closed | | Tue | closed | closed | | Wed | a | b |",
		"Day: Mon Morning: closed Evening: closed Day: Tue Morning: closed Evening: closed Day: Wed Morning: a Evening: b"},
	{"header of two rows", true, [][]spanned{{{"Item", 1, 2}, {"Price", 2, 1}}, plainCells("2024", "2025"),
		plainCells("Tent", "5", "6"), plainCells("Canoe", "8", "9")},
		"| Item | Price | Price | | Item | 2024 | 2025 | | Tent | 5 | 6 | | Canoe | 8 | 9 |",
		"Item: Tent Price 2024: 5 Price 2025: 6 Item: Canoe Price 2024: 8 Price 2025: 9"},
	{"one name for two columns", true, [][]spanned{{{"Name", 1, 1}, {"Contact", 2, 1}}, plainCells("Ann", "a@x", "tel 3"),
		plainCells("Bob", "b@x", "tel 4")},
		"| Name | Contact | Contact | | Ann | a@x | tel 3 | | Bob | b@x | tel 4 |",
		"Name: Ann Contact: a@x Contact: tel 3 Name: Bob Contact: b@x Contact: tel 4"},
	{"title", true, [][]spanned{{{"Prices of May", 3, 1}}, plainCells("Item", "Spring", "Autumn"), plainCells("Tent", "5", "6"),
		{{"Closed in winter", 3, 1}}},
		"| Prices of May | | Item | Spring | Autumn | | Tent | 5 | 6 | | Closed in winter |",
		"Prices of May Item: Tent Spring: 5 Autumn: 6 Closed in winter"},
}

// tableFormats write a table in each format. A row without a writer is a format without tables.
var tableFormats = []struct {
	format       *format
	spans, sheet bool
	write        func(t *testing.T, rows [][]spanned) string
}{
	{webArchive, true, false, func(_ *testing.T, rows [][]spanned) string {
		return "Content-Type: multipart/related; boundary=b\n\n--b\nContent-Type: text/html\n\n" + htmlTable(rows) +
			"\n--b--\n"
	}},
	{notebook, false, false, func(t *testing.T, rows [][]spanned) string { return makeNotebook(t, markdownTable(rows)) }},
	{plainText, false, false, nil}, {jsonFile, false, false, nil}, {jsonLines, false, false, nil}, {pdfFile, false, false, nil},
	{htmlPage, true, false, func(_ *testing.T, rows [][]spanned) string { return htmlTable(rows) }},
	{markdown, true, false, func(_ *testing.T, rows [][]spanned) string { return "Before.\n\n" + htmlTable(rows) + "\n" }},
	{markdown, false, false, func(_ *testing.T, rows [][]spanned) string { return markdownTable(rows) }},
	{bookFile, true, false, func(t *testing.T, rows [][]spanned) string {
		return makeBook(t, map[string]string{"OEBPS/text/two.xhtml": htmlTable(rows)})
	}},
	{mailFile, true, false, func(_ *testing.T, rows [][]spanned) string {
		return "Content-Type: text/html; charset=utf-8\r\n\r\n" + htmlTable(rows)
	}},
	{wordFile, true, false, wordTable}, {slidesFile, true, false, slideTable}, {openFile, true, false, openText},
	{rtfFile, true, false, func(_ *testing.T, rows [][]spanned) string { return rtfTable(rows, true) }},
	{rtfFile, true, false, func(_ *testing.T, rows [][]spanned) string { return rtfTable(rows, false) }},
	{openFile, true, true, openSheet}, {sheetsFile, true, true, sheetTable},
	{csvFile, false, true, func(_ *testing.T, rows [][]spanned) string {
		return eachRow(rows, "", "", "\n", func(c spanned) string { return c.text + ";" })
	}},
}

// grown returns the rows with the places that spans cover as cells without spans: "<" belongs to the cell on
// its left, "^" to the cell above.
func grown(rows [][]spanned) [][]spanned {
	var out [][]spanned
	below := map[[2]int]bool{}
	for y, row := range rows {
		var line []spanned
		place := func() {
			for below[[2]int{len(line), y}] {
				line = append(line, spanned{text: "^"})
			}
		}
		for _, c := range row {
			place()
			x := len(line)
			line = append(line, c)
			for range max(c.across, 1) - 1 {
				line = append(line, spanned{text: "<"})
			}
			for dy := 1; dy < c.down; dy++ {
				for dx := range max(c.across, 1) {
					below[[2]int{x + dx, y + dy}] = true
				}
			}
		}
		place()
		out = append(out, line)
	}
	return out
}

func eachRow(rows [][]spanned, head, start, end string, write func(c spanned) string) string {
	out := head
	for _, row := range rows {
		out += start
		for _, c := range row {
			out += write(c)
		}
		out += end
	}
	return out
}

func htmlTable(rows [][]spanned) string {
	return eachRow(rows, "<table>", "<tr>", "</tr>", func(c spanned) string {
		return fmt.Sprintf(`<td colspan="%d" rowspan="%d">%s</td>`, max(c.across, 1), max(c.down, 1), c.text)
	}) + "</table>"
}

// makeNotebook makes a notebook of one cell.
func makeNotebook(t *testing.T, source string) string {
	text, err := json.Marshal(strings.SplitAfter(source, "\n"))
	require.NoError(t, err)
	return `{"cells":[{"cell_type":"markdown","source":` + string(text) + `}],"nbformat":4}`
}

func markdownTable(rows [][]spanned) string {
	table := eachRow(rows, "", "|", "\n", func(c spanned) string { return " " + c.text + " |" })
	first, rest, _ := strings.Cut(table, "\n")
	return first + "\n" + strings.Repeat("|-", strings.Count(first, "|")-1) + "|\n" + rest
}

func wordTable(t *testing.T, rows [][]spanned) string {
	var lines [][]spanned
	for _, row := range grown(rows) {
		var line []spanned
		for i, c := range row {
			if c.text != "<" && !(c.text == "^" && i > 0 && row[i-1].text == "^") {
				line = append(line, c)
			} else if c.text == "^" {
				line[len(line)-1].across = 2
			}
		}
		lines = append(lines, line)
	}
	return makeWord(t, eachRow(lines, "<w:tbl>", "<w:tr>", "</w:tr>", func(c spanned) string {
		properties := fmt.Sprintf(`<w:gridSpan w:val="%d"/>`, max(c.across, 1))
		switch {
		case c.text == "^":
			return "<w:tc><w:tcPr>" + properties + "<w:vMerge/></w:tcPr><w:p/></w:tc>"
		case c.down > 1:
			properties += `<w:vMerge w:val="restart"/>`
		}
		return "<w:tc><w:tcPr>" + properties + "</w:tcPr>" + wordParagraph(c.text) + "</w:tc>"
	})+"</w:tbl>")
}

func slideTable(t *testing.T, rows [][]spanned) string {
	return makeSlide(t, `</a:p></p:txBody></p:sp><p:graphicFrame>`+eachRow(grown(rows), "<a:tbl>", "<a:tr>", "</a:tr>",
		func(c spanned) string {
			switch c.text {
			case "<":
				return `<a:tc hMerge="1"><a:txBody><a:p/></a:txBody></a:tc>`
			case "^":
				return `<a:tc vMerge="1"><a:txBody><a:p/></a:txBody></a:tc>`
			}
			return fmt.Sprintf(`<a:tc gridSpan="%d" rowSpan="%d"><a:txBody>%s</a:txBody></a:tc>`, max(c.across, 1), max(c.down, 1),
				drawn(c.text))
		})+`</a:tbl></p:graphicFrame><p:sp><p:txBody><a:p>`)
}

func openTableXML(rows [][]spanned) string {
	return eachRow(grown(rows), `<table:table table:name="S">`, "<table:table-row>", "</table:table-row>", func(c spanned) string {
		if c.text == "<" || c.text == "^" {
			return `<table:covered-table-cell/>`
		}
		return fmt.Sprintf(`<table:table-cell table:number-columns-spanned="%d" table:number-rows-spanned="%d"><text:p>%s</text:p>`+
			`</table:table-cell>`, max(c.across, 1), max(c.down, 1), c.text)
	}) + "</table:table>"
}

func openText(t *testing.T, rows [][]spanned) string {
	return makeOpen(t, "", "<office:text>"+openTableXML(rows)+"</office:text>")
}

func openSheet(t *testing.T, rows [][]spanned) string {
	return makeOpen(t, "", "<office:spreadsheet>"+openTableXML(rows)+"</office:spreadsheet>")
}

// rtfTable writes merged cells as such, or without them where a wider cell says the same.
func rtfTable(rows [][]spanned, merged bool) string {
	return eachRow(grown(rows), `{\rtf1\ansi `, "", "", func(spanned) string { return "" }) + func() (out string) {
		for y, row := range grown(rows) {
			defined, cells := "", ""
			for i, c := range row {
				word := map[string]string{"<": `\clmrg`, "^": `\clvmrg`}[c.text]
				edge := fmt.Sprintf(`%s\cellx%d`, word, 1440*(i+1)+7*y)
				switch {
				case c.text == "<" && !merged:
					defined = defined[:strings.LastIndex(defined, `\cellx`)] + fmt.Sprintf(`\cellx%d`, 1440*(i+1)+7*y)
					continue
				case word != "":
					cells += `\cell`
				default:
					cells += " " + c.text + `\cell`
				}
				defined += edge
			}
			out += `\trowd` + defined + `\pard\intbl` + cells + `\row`
		}
		return out + "}"
	}()
}

func sheetTable(t *testing.T, rows [][]spanned) string {
	merges, sheet := "", ""
	for y, row := range grown(rows) {
		sheet += fmt.Sprintf(`<row r="%d">`, y+1)
		for x, c := range row {
			if c.text == "<" || c.text == "^" {
				continue
			}
			sheet += fmt.Sprintf(`<c r="%c%d" t="inlineStr"><is><t>%s</t></is></c>`, 'A'+x, y+1, c.text)
			if c.across > 1 || c.down > 1 {
				merges += fmt.Sprintf(`<mergeCell ref="%c%d:%c%d"/>`, 'A'+x, y+1, 'A'+x+max(c.across, 1)-1, y+max(c.down, 1))
			}
		}
		sheet += "</row>"
	}
	return makeWorkbook(t, sheet+"</sheetData><mergeCells>"+merges+"</mergeCells><sheetData>", "", "")
}

// Every format fills the cells that others span, and names the columns of each passage. A new format needs a row.
func TestTables(t *testing.T) {
	t.Parallel()
	rows := map[string]bool{}
	for i, row := range tableFormats {
		rows[row.format.label] = true
		if row.write == nil {
			continue
		}
		extension := row.format.extensions[0]
		for _, c := range tableCases {
			if c.spans && !row.spans {
				continue
			}
			t.Run(fmt.Sprintf("%d %s %s", i, extension, c.name), func(t *testing.T) {
				t.Parallel()
				want := c.text
				if row.sheet {
					want = c.sheet
				}
				d := mustLoad(t, "a"+extension, row.write(t, c.rows))
				require.Contains(t, strings.Join(strings.Fields(d.Text), " "), want)
			})
		}
		t.Run(fmt.Sprintf("%d %s long", i, extension), func(t *testing.T) {
			t.Parallel()
			long := [][]spanned{plainCells("parameter", "default")}
			count := 300
			if row.format == markdown && !row.spans {
				count = 3000 // more than is parsed at once
			}
			for n := range count {
				long = append(long, plainCells(fmt.Sprintf("knob %d", n), strings.Repeat("value ", 3)))
			}
			passages := chunk.Split(mustLoad(t, "a"+extension, row.write(t, long)), chunk.Default())
			require.Greater(t, len(passages), 5)
			for _, p := range passages {
				if strings.Contains(p.Text, "knob") {
					require.Regexp(t, `parameter(?s:.*)knob`, p.Text)
					require.Regexp(t, `default(?s:.*)value`, p.Text)
				}
			}
		})
	}
	for _, f := range formats {
		require.True(t, rows[f.label], "add a row for %s to tableFormats", f.label)
	}
}

// The rows of a sheet have no common limit of cells.
func TestManyRows(t *testing.T) {
	t.Parallel()
	var sheet table
	for range mostCells/8 + 10 {
		for column := range 8 {
			sheet.cellAt(column, "x", 1, 1)
		}
		if cells := sheet.takeRow(); len(cells) != 8 {
			require.Len(t, cells, 8)
		}
	}
}

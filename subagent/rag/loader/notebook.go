package loader

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"
)

// readNotebook reads a Jupyter notebook (nbformat.readthedocs.io): its Markdown, code and the text of its outputs.
func readNotebook(b *builder, f file) error {
	source, err := decode(f.data, f.charset())
	if err != nil {
		return err
	}
	if !jsontext.Value(source).IsValid(jsonOptions) {
		return damaged("a notebook", nil)
	}
	gjson.Get(source, `[cells,worksheets.#.cells|@flatten]|@flatten`).ForEach(func(_, cell gjson.Result) bool {
		text := joined(cell.Get("source")) + joined(cell.Get("input"))
		switch kind := cell.Get("cell_type").String(); kind {
		case "markdown":
			b.markdown(clean(text))
		case "code":
			b.whole(text)
		default:
			b.paragraph(squeeze(text))
		}
		cell.Get("outputs").ForEach(func(_, output gjson.Result) bool {
			b.output(output)
			return b.err == nil
		})
		return b.room(0)
	})
	return nil
}

// joined returns a text that may be a list of lines.
func joined(v gjson.Result) string {
	var out strings.Builder
	if !v.IsArray() {
		return v.String()
	}
	for _, line := range v.Array() {
		out.WriteString(line.String())
	}
	return out.String()
}

// output adds the text of a cell's output, and counts what is none.
func (b *builder) output(output gjson.Result) {
	data := output.Get("data")
	text := joined(output.Get("text")) + joined(data.Get(`text/plain`))
	if name := output.Get("ename").String(); name != "" {
		text += name + ": " + output.Get("evalue").String()
	}
	data.ForEach(func(kind, value gjson.Result) bool {
		switch name := kind.String(); {
		case strings.HasPrefix(name, "image/"):
			b.skip("pictures", 1)
		case text != "" || name == "text/plain":
		case name == "text/html":
			b.hypertext(joined(value), false)
		default:
			b.skip("outputs", 1)
		}
		return true
	})
	b.whole(text)
}

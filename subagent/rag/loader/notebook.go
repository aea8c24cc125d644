package loader

import (
	"cmp"
	"regexp"
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
		if cell.Get("cell_type").String() == "markdown" {
			b.markdown(clean(text))
		} else {
			b.addBlock(text)
		}
		for _, output := range cell.Get("outputs").Array() {
			data := output.Get("data")
			text := joined(output.Get("text")) + joined(data.Get(`text/plain`)) + output.Get("evalue").String()
			switch marked, page := joined(data.Get(`text/markdown`)), joined(data.Get(`text/html`)); {
			case text != "" && !objectName.MatchString(text):
				b.addBlock(text)
			case marked != "":
				b.markdown(clean(marked))
			case page != "":
				b.hypertext(page, false)
			default:
				b.addBlock(cmp.Or(joined(data.Get(`text/latex`)), text))
			}
			data.ForEach(func(kind, _ gjson.Result) bool {
				if !strings.HasPrefix(kind.String(), "text/") {
					b.skip("pictures and other outputs", 1)
				}
				return true
			})
		}
		return b.room(0)
	})
	return nil
}

// objectName matches the name of an object, which stands for other forms of it.
var objectName = regexp.MustCompile(`^\s*<[\w.]+ [^<>]*>\s*$`)

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

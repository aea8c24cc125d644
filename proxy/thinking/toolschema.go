package thinking

import (
	"strconv"

	"mneme/proxy/lazyregexp"
)

// RefusedSchema says which tools' schemas a vendor's error refuses.
type RefusedSchema struct {
	Matched bool     // it is about the schema of a tool
	Names   []string // of the tools; none if the error does not say
	Indexes []int    // or their places in the request
}

var (
	ofSchema = lazyregexp.New(`(?i)invalid schema for function|\binput_schema\b|function_declarations?\[\d+\]\.parameters|` +
		`moonshot flavored json schema|invalid tool schema|invalid_function_parameters|` +
		`\btools?[.\[](?:\d+\]?\.)?(?:function\.|custom\.)?parameters\b|` +
		`enum only allowed for string type|failed to parse grammar|json schema (?:conversion failed|not supported)|conflict in schema definitions|failed to compile json schema|` +
		`(?:tool|function)\b.{0,80}\bjson ?schema\b|json ?schema\b.{0,80}\b(?:tool|function)\b`)
	ofAnswer    = lazyregexp.New(`(?i)schema for response_format|response_format|output_config|output_format`)
	schemaNames = lazyregexp.New(`(?i)(?:schema for function|(?:function|tool)(?: named)?) '([\w.-]{1,128})'`)
	schemaAt    = lazyregexp.New(`(?i)(?:\btools?[.\[]|function_declarations?\[)(\d+)\]?\.(?:custom|function|parameters|input_schema)\b`)
)

// SchemaRefused reads an error with an HTTP status that refuses the schema of a tool.
func SchemaRefused(status int, body []byte) (r RefusedSchema) {
	text := normalize(body)
	if !ofContent(status, body) || !ofSchema().MatchString(text) || ofAnswer().MatchString(text) {
		return r
	}
	r.Matched = true
	for _, m := range schemaNames().FindAllStringSubmatch(text, -1) {
		r.Names = append(r.Names, m[1])
	}
	for _, m := range schemaAt().FindAllStringSubmatch(text, -1) {
		if i, err := strconv.Atoi(m[1]); err == nil {
			r.Indexes = append(r.Indexes, i)
		}
	}
	return r
}

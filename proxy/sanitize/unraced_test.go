//go:build !race

// Everything here happens in one goroutine, so scripts/test runs it without the race detector, which finds nothing in
// it and takes twenty times as long.

package sanitize_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
)

// References within references, each to two others, would be a schema of 2^60 nodes.
func TestSchemasThatGrow(t *testing.T) {
	testtier.Slow(t)
	var defs []string
	for i := range 60 {
		defs = append(defs, fmt.Sprintf(`"d%d":{"type":"object","properties":{"l":{"$ref":"#/$defs/d%d"},"r":{"$ref":"#/$defs/d%d"}}}`,
			i, i+1, i+1))
	}
	schema := `{"type":"object","properties":{"x":{"$ref":"#/$defs/d0"}},"$defs":{` + strings.Join(defs, ",") + `}}`
	require.Less(t, len(schemaFrom(t, toolRequest(t, "gemini", schema))), 300_000)
	deep := strings.Repeat(`{"type":"array","items":`, 5000) + `{}` + strings.Repeat(`}`, 5000)
	require.NotEmpty(t, schemaFrom(t, toolRequest(t, "gemini", `{"type":"object","properties":{"x":`+deep+`}}`)))
}

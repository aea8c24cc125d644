// Package mneme holds the version of the whole module, for the commands to print. It owns the text of the file
// VERSION, which is embedded; it imports nothing of ours and never does anything by itself.
package mneme

import (
	_ "embed"
	"strings"
)

//go:embed VERSION
var version string

// Version is the release that this source is of, or the last one before it, as 0.1.0.
func Version() string { return strings.TrimSpace(version) }

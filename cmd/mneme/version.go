package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set by release builds: -ldflags "-X main.version=v1.2.3".
var version = ""

type versionCmd struct{}

// Run prints one line: name, version, revision, Go.
func (versionCmd) Run(con *console) error {
	name, revision, dirty := version, "", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		if name == "" {
			name = info.Main.Version
		}
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				revision = " " + s.Value[:min(12, len(s.Value))]
			case s.Key == "vcs.modified" && s.Value == "true":
				dirty = "+changes"
			}
		}
	}
	if name == "" {
		name = "(devel)"
	}
	_, err := fmt.Fprintf(con.stdout, "mneme %s%s%s %s %s/%s\n", name, revision, dirty, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

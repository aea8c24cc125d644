package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set by release builds: -ldflags "-X main.version=v1.2.3".
var version = ""

type versionCmd struct{}

// Run prints the version.
func (versionCmd) Run(con *console) error {
	_, err := fmt.Fprintln(con.stdout, versionLine())
	return err
}

// versionLine is name, version, revision and Go's version.
func versionLine() string {
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
	return fmt.Sprintf("mneme %s%s%s %s %s/%s", name, revision, dirty, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

package main

import (
	"fmt"
	"runtime"

	"mneme/memory/telemetry"
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
	name, revision := telemetry.Build(version)
	if revision != "" {
		name += " " + revision
	}
	return fmt.Sprintf("mneme %s %s %s/%s", name, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

package main

import (
	"fmt"
	"runtime"

	module "mneme"
	"mneme/memory/telemetry"
)

type versionCmd struct{}

// Run prints the version.
func (versionCmd) Run(con *console) error {
	_, err := fmt.Fprintln(con.stdout, versionLine())
	return err
}

// versionLine is name, version, revision and Go's version.
func versionLine() string {
	version := module.Version()
	if revision := telemetry.Revision(); revision != "" {
		version += " " + revision
	}
	return fmt.Sprintf("mneme %s %s %s/%s", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

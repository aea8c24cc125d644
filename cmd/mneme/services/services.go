// Package services lets other programs of this repository run the services of mneme in their own process. It owns
// nothing: it names what is in cmd/mneme/internal, and mneme itself never uses it.
package services

import (
	"mneme/cmd/mneme/internal/app"
	"mneme/cmd/mneme/internal/config"
)

type (
	// Config is the configuration of all services.
	Config = config.Config
	// Backend is one of the gateway's.
	Backend = config.Backend
	// Secret is a key that no log shows.
	Secret = config.Secret
	// Variable is an environment variable that holds one.
	Variable = config.Variable
	// Options are what a service takes beside its configuration.
	Options = app.Options
)

// OpenAI is the kind of a backend that speaks chat completions.
const OpenAI = config.KindOpenAI

var (
	// Default makes the configuration without a file.
	Default = config.Default
	// Load reads a configuration as mneme does.
	Load = config.Load
	// Start runs a service in this process until stop.
	Start = app.Start
	// Up is all services at once, to be started.
	Up = app.Up
	// Webmemory is the public service, to be started.
	Webmemory = app.Webmemory
	// Gateway starts a gateway that shares nothing with those that run.
	Gateway = app.Gateway
)

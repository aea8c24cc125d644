package app

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"mneme/cmd/mneme/internal/config"
	"mneme/proxy"
)

// copilotCLI says where a backend has its CLI. One that the gateway runs gets a
// folder of its own, where it works and keeps what was said.
func copilotCLI(cfg config.Config, name string, b config.Backend) (proxy.CLIConfig, error) {
	c := proxy.CLIConfig{Addr: b.Addr, ProviderBackend: b.ProviderBackend}
	if len(b.Command) == 0 {
		return c, nil
	}
	program, err := exec.LookPath(b.Command[0])
	if err == nil {
		program, err = filepath.Abs(program) // it runs in another folder
	}
	if err != nil {
		return c, fmt.Errorf("proxy.backends.%s.command: %w; install the Copilot CLI, or give its whole path", name, err)
	}
	if c.Dir, err = filepath.Abs(filepath.Join(cfg.DataDir, "copilot", name)); err == nil {
		err = os.MkdirAll(c.Dir, 0o700)
	}
	if err != nil {
		return c, fmt.Errorf("proxy.backends.%s.command: no folder for it: %w; check data_dir", name, err)
	}
	c.Command = append([]string{program}, b.Command[1:]...)
	c.Env = slices.Clone(b.CommandEnv)
	if !slices.ContainsFunc(c.Env, func(v string) bool { return strings.HasPrefix(v, "COPILOT_HOME=") }) {
		c.Env = append(c.Env, "COPILOT_HOME="+filepath.Join(c.Dir, "home"))
	}
	return c, nil
}

package copilot_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/copilottest"
	"mneme/proxy/copilot"
)

// pidVar is a file for the process id of a CLI.
const pidVar = "COPILOT_TEST_PID"

func init() {
	// supervises runs a CLI and waits to be killed.
	roles["supervises"] = func() {
		child := role("listens", os.Getenv(addrVar))
		child.Args = []string{"-c", `echo $$ > "$` + pidVar + `"; exec "$0" "$@"`, child.Path}
		child.Path = "/bin/sh"
		child.Env = append(child.Env, pidVar+"="+os.Getenv(pidVar))
		sup, err := copilot.Supervise(copilot.SupervisorConfig{Command: child})
		if err == nil {
			_, err = sup.Router(context.Background())
		}
		fmt.Println(err)
		select {}
	}
}

// A CLI does not outlive the process that runs it, even if that is killed.
func TestACLIEndsWithItsParent(t *testing.T) {
	server := copilottest.Start(t)
	pidFile := filepath.Join(t.TempDir(), "pid")
	parent := exec.Command(os.Args[0])
	parent.Env = []string{roleVar + "=supervises", addrVar + "=" + server.Addr(), pidVar + "=" + pidFile}
	out, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "<nil>\n", line)
	pid, err := os.ReadFile(pidFile)
	require.NoError(t, err)
	stat := filepath.Join("/proc", strings.TrimSpace(string(pid)), "stat")
	require.FileExists(t, stat)
	require.NoError(t, parent.Process.Kill())
	_ = parent.Wait()
	eventually(t, func() bool {
		// The process that inherits the orphan may take its time to bury it.
		state, err := os.ReadFile(stat)
		return err != nil || bytes.Contains(state, []byte(") Z "))
	}, "the CLI is gone, too")
}

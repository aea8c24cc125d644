//go:build unix

package processgroup_test

import (
	"bufio"
	"io"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/memory/processgroup"
)

// Terminate and Kill also end the processes that the program started. The output of the program ends after the last of
// them.
func TestTheWholeGroupEnds(t *testing.T) {
	for name, c := range map[string]struct {
		trap string
		end  func(*exec.Cmd)
	}{"terminated": {"", processgroup.Terminate}, "killed": {"trap '' TERM; ", processgroup.Kill}} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command("sh", "-c", c.trap+"sleep 600 & echo started; wait")
			processgroup.Prepare(cmd)
			stdout, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			out := bufio.NewReader(stdout)
			line, err := out.ReadString('\n')
			require.NoError(t, err)
			require.Equal(t, "started\n", line)
			c.end(cmd)
			_, err = io.ReadAll(out)
			require.NoError(t, err)
			require.Error(t, cmd.Wait())
		})
	}
}

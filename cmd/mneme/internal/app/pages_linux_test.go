package app

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// filePages are those of files that this process has in memory, in kB.
func filePages(t *testing.T) (n int) {
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(status), "RssFile:")
	_, err = fmt.Sscan(rest, &n)
	require.NoError(t, err)
	return n
}

func TestTheStartsPagesAreGivenBack(t *testing.T) {
	before := filePages(t)
	dropStart()
	require.Less(t, filePages(t), before*9/10)
}

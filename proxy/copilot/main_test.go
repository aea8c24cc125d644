package copilot_test

import (
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Bounds for what the machine may take; nothing asserts a time.
const (
	waitLimit = time.Minute
	waitStep  = 2 * time.Millisecond
)

// roleVar makes the test's own program play a CLI, see roles.
const roleVar = "COPILOT_TEST_ROLE"

func TestMain(m *testing.M) {
	role := roles[os.Getenv(roleVar)]
	if role == nil {
		goleak.VerifyTestMain(m)
		return
	}
	role()
}

// addrVar is where a fake CLI listens that a role passes connections on to.
const addrVar = "COPILOT_TEST_ADDR"

// roles are what a child process does.
var roles = map[string]func(){
	// listens passes its first connections on to a fake in the test's process.
	"listens": func() {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println("some words before")
		fmt.Printf("CLI server listening on port %d\n", l.Addr().(*net.TCPAddr).Port)
		for {
			near, err := l.Accept()
			if err != nil {
				os.Exit(1)
			}
			far, err := net.Dial("tcp", os.Getenv(addrVar))
			if err != nil {
				os.Exit(1)
			}
			go relay(near, far)
			go relay(far, near)
		}
	},
	"fails":  func() { fmt.Fprintln(os.Stderr, "Offline mode requires a local model provider"); os.Exit(3) },
	"silent": func() { select {} },
	"leaves": func() { os.Exit(0) },
}

func relay(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		if n > 0 {
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

package main

import (
	"fmt"
	"os/exec"
	"runtime"
)

// browse shows an address in the browser of the user that started the process, and says so where there is none. It
// does not wait for the browser.
func (con *console) browse(address string) {
	cannot := func(why string) {
		fmt.Fprintf(con.stdout, "No browser was opened (%s): open %s in one.\n", why, address)
	}
	line := []string{"xdg-open", address}
	switch runtime.GOOS {
	case "darwin":
		line[0] = "open"
	case "windows":
		line = []string{"rundll32", "url.dll,FileProtocolHandler", address}
	default:
		if con.getenv("DISPLAY") == "" && con.getenv("WAYLAND_DISPLAY") == "" {
			cannot("there is no display")
			return
		}
	}
	opener := exec.Command(line[0], line[1:]...)
	if err := opener.Start(); err != nil {
		cannot(err.Error())
		return
	}
	go func() { _ = opener.Wait() }() // the browser may go on when this process has ended
}

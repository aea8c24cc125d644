package app

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

// dropStart gives back the pages of the program's file that are in memory, as soon as the process is ready. Nearly
// all of them were needed by the start alone, which initializes every package that is linked; those that are needed
// still come back out of the kernel's cache. Pages that hold anything but the file's bytes stay.
func dropStart() {
	program, err := os.Readlink("/proc/self/exe")
	maps, _ := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return
	}
	var start, end uintptr // of a mapping of the program that is never written to
	for line := range strings.Lines(string(maps)) {
		fields := strings.Fields(line)
		var from, to uintptr
		switch n, _ := fmt.Sscanf(fields[0], "%x-%x", &from, &to); {
		case n == 2:
			start, end = 0, 0
			if last := fields[len(fields)-1]; last == program && fields[1][1] == '-' {
				start, end = from, to
			}
		case fields[0] == "Anonymous:" && fields[1] == "0" && start > 0:
			_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, start, end-start, syscall.MADV_DONTNEED) // else they stay
		}
	}
}

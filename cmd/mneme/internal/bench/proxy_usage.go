package bench

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// cpuTime is how long the processes' threads have been running, in the kernel
// too, to the nanosecond: the times in /proc/<pid>/stat are in hundredths of a
// second. A thread that has ended is no longer counted; neither Go nor nginx end
// theirs.
func cpuTime(pids []int) (time.Duration, error) {
	var sum time.Duration
	for _, pid := range pids {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
		if err != nil || len(threads) == 0 {
			return 0, fmt.Errorf("there is no /proc/%d/task/*/schedstat: the process has ended, or the kernel keeps no such statistics", pid)
		}
		for _, name := range threads {
			text, err := os.ReadFile(name)
			if errors.Is(err, os.ErrNotExist) {
				continue
			}
			if err != nil {
				return 0, err
			}
			running, _, _ := strings.Cut(string(text), " ")
			ns, err := strconv.ParseInt(running, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("%s does not say how long the thread ran: %w", name, err)
			}
			sum += time.Duration(ns)
		}
	}
	return sum, nil
}

// resident is the processes' VmRSS in bytes. What they share counts for each.
func resident(pids []int) (float64, error) {
	sum := 0.0
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return 0, err
		}
		_, rest, _ := strings.Cut(string(text), "\nVmRSS:")
		kilobytes, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
		n, err := strconv.ParseFloat(kilobytes, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/%d/status has no VmRSS: %w", pid, err)
		}
		sum += n * 1024
	}
	return sum, nil
}

// family is a process and its children.
func family(parent int) ([]int, error) {
	names, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	pids := []int{parent}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		// The program's name, in brackets, may hold anything.
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if len(fields) < 2 || fields[1] != strconv.Itoa(parent) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// processor is the name of the machine's processor, empty if it is not told.
func processor() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(text), "model name")
	name, _, _ := strings.Cut(rest, "\n")
	return strings.Trim(name, "\t :")
}

// loadAverage is how many processes wanted to run, over the last minute.
func loadAverage() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), " ")
	average, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0
	}
	return average
}

package sluicectl

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// userHz is Linux's unit of CPU times, in 1/s, on every architecture of Go.
const userHz = 100

// cpuSeconds returns the CPU time that each process has used so far, with all its threads, in user
// and kernel mode.
func cpuSeconds(pids []int) ([]float64, error) {
	var seconds []float64
	for _, pid := range pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return nil, err
		}
		ticks, err := cpuTicks(string(b))
		if err != nil {
			return nil, fmt.Errorf("process %d: %w", pid, err)
		}
		seconds = append(seconds, float64(ticks)/userHz)
	}
	return seconds, nil
}

// cpuTicks adds utime and stime of a line of /proc/PID/stat, fields 14 and 15 (proc(5)). Field 2 is
// the program's name in parentheses, which may itself have spaces and parentheses.
func cpuTicks(stat string) (uint64, error) {
	const utime, stime = 14 - 3, 15 - 3 // behind the name
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) <= stime {
		return 0, fmt.Errorf("/proc/PID/stat has %d fields behind the name, want more than %d", len(fields), stime)
	}
	u, err := strconv.ParseUint(fields[utime], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("/proc/PID/stat, utime: %w", err)
	}
	s, err := strconv.ParseUint(fields[stime], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("/proc/PID/stat, stime: %w", err)
	}
	return u + s, nil
}

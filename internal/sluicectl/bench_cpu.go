package sluicectl

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// cpuSeconds returns the CPU time that each process has used so far, with all its threads, in user
// and kernel mode.
func cpuSeconds(pids []int) ([]float64, error) {
	var seconds []float64
	for _, pid := range pids {
		d, err := cpuTime(pid)
		if err != nil {
			return nil, err
		}
		seconds = append(seconds, d.Seconds())
	}
	return seconds, nil
}

// cpuTime reads the CPU clock of a process. Its number is that of clock_getcpuclockid(3), and its
// resolution is a nanosecond.
func cpuTime(pid int) (time.Duration, error) {
	const scheduled = 2 // CPUCLOCK_SCHED
	if pid < 1 {
		return 0, fmt.Errorf("process %d: must be 1 at least", pid)
	}
	return clock(^int32(pid)<<3|scheduled, fmt.Sprintf("process %d", pid))
}

// ownCPU is the CPU time of this process so far.
func ownCPU() time.Duration {
	d, _ := clock(unix.CLOCK_PROCESS_CPUTIME_ID, "")
	return d
}

func clock(id int32, name string) (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(id, &t); errors.Is(err, unix.EINVAL) {
		return 0, fmt.Errorf("%s: no such process", name)
	} else if err != nil {
		return 0, fmt.Errorf("%s: its CPU time: %w", name, err)
	}
	return time.Duration(t.Nano()), nil
}

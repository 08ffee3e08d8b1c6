package blocking

import (
	"time"

	"golang.org/x/sys/unix"
)

// mostRest bounds how many reads in a row do not spin.
const mostRest = 64

// spinner asks whether there is something to read for a while before a read blocks. Where the
// processor would have gone to sleep meanwhile, or the other end's too, that saves a wake-up, which
// takes longer than many small messages. Where it is in vain it rests: for one read at first, for
// twice as many each time that it is in vain again.
type spinner struct {
	most     time.Duration
	rest     int // reads that do not spin
	nextRest int
}

// await returns when fd or event is readable, or when it is enough. It lets other threads of this
// processor go first.
func (s *spinner) await(fd, event int) {
	if s.rest > 0 {
		s.rest--
		return
	}
	fds := [2]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: int32(event), Events: unix.POLLIN}}
	for begin := time.Now(); time.Since(begin) < s.most; {
		if n, _ := unix.Poll(fds[:], 0); n > 0 {
			s.nextRest = 1
			return
		}
		_, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	}
	s.rest = max(s.nextRest, 1)
	s.nextRest = min(2*s.rest, mostRest)
}

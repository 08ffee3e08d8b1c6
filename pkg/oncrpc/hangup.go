package oncrpc

import (
	"io"
	"time"

	"golang.org/x/sys/unix"
)

// lookEvery is the interval at which a waiting receive loop checks that the peer is still there.
const lookEvery = time.Second

// wait blocks the receive loop until ch is ready or the connection ends. It sends the gathered
// messages first.
func (l *link) wait(ch <-chan struct{}) error {
	l.release()
	defer l.hold()
	var look <-chan time.Time
	sock, ok := l.sock.(interface{ hungUp() bool })
	if ok {
		if l.look == nil {
			l.look = time.NewTimer(lookEvery)
		} else {
			l.look.Reset(lookEvery)
		}
		defer l.look.Stop()
		look = l.look.C
	}
	for {
		select {
		case <-ch:
			return nil
		case <-l.done:
			return l.err()
		case <-look:
			if sock.hungUp() {
				return io.EOF
			}
			l.look.Reset(lookEvery)
		}
	}
}

// hungUp reports whether the peer has ended the stream or is gone, even if there are unread bytes.
func (s *tcpSocket) hungUp() (gone bool) {
	const gonePoll = unix.POLLRDHUP | unix.POLLHUP | unix.POLLERR
	_ = s.raw.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(p, 0)
		gone = err == nil && n > 0 && p[0].Revents&gonePoll != 0
	})
	return gone
}

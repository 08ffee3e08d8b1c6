package main

import (
	"net"
	"os"
	"runtime"
	"syscall"
)

// relayServe forwards bytes between connections to a loopback listener and its own connections to
// target, until its standard input ends. It uses a blocking thread for each direction: the lowest
// cost of a process in between.
func relayServe(target string) error {
	return serveLoopback(func(in net.Conn) error {
		out, err := net.Dial("tcp", target)
		if err != nil {
			return err
		}
		a, err := blocking(in)
		if err != nil {
			return err
		}
		b, err := blocking(out)
		if err != nil {
			return err
		}
		go pass(a, b)
		go pass(b, a)
		return nil
	})
}

// blocking takes a connection out of Go's poller.
func blocking(c net.Conn) (*os.File, error) {
	defer c.Close()
	return c.(*net.TCPConn).File()
}

// pass forwards bytes until the connection ends.
func pass(from, to *os.File) {
	r, w := int(from.Fd()), int(to.Fd()) // Fd makes them block
	defer runtime.KeepAlive(from)        // the last user closes them
	defer runtime.KeepAlive(to)
	buf := make([]byte, 1<<20)
	for {
		n, err := syscall.Read(r, buf)
		if err == syscall.EINTR {
			continue
		}
		for p := buf[:max(n, 0)]; len(p) > 0; {
			k, err := syscall.Write(w, p)
			if err != nil && err != syscall.EINTR {
				return
			}
			p = p[max(k, 0):]
		}
		if n <= 0 {
			_ = syscall.Shutdown(w, syscall.SHUT_WR)
			return
		}
	}
}

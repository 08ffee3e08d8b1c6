package blocking

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair returns both ends of a TCP connection, one of them taken.
func pair(t *testing.T, spin time.Duration) (*Conn, *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ours, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := ours.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	c := Take(raw, 1000, spin)
	if c == nil {
		t.Fatal("the connection was not taken")
	}
	_ = ours.Close()
	t.Cleanup(func() {
		_ = c.Close()
		_ = theirs.Close()
	})
	return c, theirs.(*net.TCPConn)
}

// read reads up to 100 bytes.
func read(c *Conn) (got []byte, err error) {
	var h unix.Msghdr
	buf := make([]byte, 100)
	iov := []unix.Iovec{Iovec(buf)}
	var n int
	var errno syscall.Errno
	err = c.Read(func(fd uintptr) bool {
		n, errno = Recvmsg(fd, &h, iov, 0)
		return errno != unix.EAGAIN
	})
	switch {
	case err != nil:
		return nil, err
	case errno != 0:
		return nil, errno
	case n == 0:
		return nil, io.EOF
	}
	return buf[:n], nil
}

// write writes all of b, waiting where necessary.
func write(c *Conn, b []byte) (err error) {
	var h unix.Msghdr
	for len(b) > 0 && err == nil {
		var n int
		var errno syscall.Errno
		err = c.Write(func(fd uintptr) bool {
			n, errno = Sendmsg(fd, &h, []unix.Iovec{Iovec(b)})
			return errno != unix.EAGAIN
		})
		if err == nil && errno != 0 {
			err = errno
		}
		b = b[n:]
	}
	return err
}

func TestReadsAndWrites(t *testing.T) {
	t.Run("blocks", func(t *testing.T) { readsAndWrites(t, 0) })
	t.Run("spins", func(t *testing.T) { readsAndWrites(t, time.Millisecond) })
}

func readsAndWrites(t *testing.T, spin time.Duration) {
	c, peer := pair(t, spin)
	go func() { _, _ = io.Copy(peer, peer); _ = peer.CloseWrite() }()
	for range 100 { // with and without a busy connection
		if err := write(c, []byte("to and fro")); err != nil {
			t.Fatal(err)
		}
		if got, err := read(c); string(got) != "to and fro" || err != nil {
			t.Fatalf("%q, %v", got, err)
		}
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := read(c); !errors.Is(err, io.EOF) {
		t.Errorf("after the peer's end: %v, must be EOF", err)
	}
}

// TestEndsOfReads: a waiting read, whether the first or after data, ends with a deadline or close
// meanwhile.
func TestEndsOfReads(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(*Conn, *net.TCPConn)
		want error
	}{
		"deadline": {func(c *Conn, _ *net.TCPConn) { _ = c.SetReadDeadline(time.Unix(1, 0)) }, os.ErrDeadlineExceeded},
		"later deadline": {func(c *Conn, _ *net.TCPConn) {
			_ = c.SetReadDeadline(time.Now().Add(time.Hour))
			_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
		}, os.ErrDeadlineExceeded},
		"peer":  {func(_ *Conn, peer *net.TCPConn) { _ = peer.Close() }, io.EOF},
		"close": {func(c *Conn, _ *net.TCPConn) { _ = c.Close() }, net.ErrClosed},
	} {
		for _, how := range []string{"first", "busy", "spinning"} {
			t.Run(name+"/"+how, func(t *testing.T) {
				spin := time.Duration(0)
				if how == "spinning" {
					spin = time.Minute
				}
				conn, peer := pair(t, spin)
				if how != "first" {
					_, _ = peer.Write([]byte("hello"))
					if _, err := read(conn); err != nil {
						t.Fatal(err)
					}
				}
				ended := make(chan error)
				go func() {
					_, err := read(conn)
					ended <- err
				}()
				c.end(conn, peer)
				err := <-ended
				// A read that waits when the connection is closed may find the end of the stream.
				if !errors.Is(err, c.want) && (!errors.Is(c.want, net.ErrClosed) || !errors.Is(err, io.EOF)) {
					t.Errorf("%v, must be %v", err, c.want)
				}
			})
		}
	}
}

// TestDeadlineIsTakenBack: a connection continues after a deadline, and an expired one ends each
// read.
func TestDeadlineIsTakenBack(t *testing.T) {
	c, peer := pair(t, 0)
	for range 2 {
		_ = c.SetReadDeadline(time.Unix(1, 0))
		for range 2 {
			if _, err := read(c); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("%v, must be the deadline", err)
			}
		}
		_ = c.SetReadDeadline(time.Time{})
		_, _ = peer.Write([]byte("x"))
		if got, err := read(c); string(got) != "x" || err != nil {
			t.Fatalf("%q, %v", got, err)
		}
	}
}

// TestLateKick: a kick for a read that had already seen its deadline does not wake the next one.
func TestLateKick(t *testing.T) {
	c, _ := pair(t, 0)
	_, _ = unix.Write(c.event, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	until := deadline(time.Now().Add(50 * time.Millisecond))
	waits := 0
	for {
		ready, err := c.readable(until)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if ready || err != nil {
			t.Fatalf("ready: %v, %v", ready, err)
		}
		if waits++; waits > 10 {
			t.Fatal("the read does not wait")
		}
	}
}

// TestEndsOfWrites: a write to a full socket ends at the deadline, or with the connection.
func TestEndsOfWrites(t *testing.T) {
	c, _ := pair(t, 0)
	_ = c.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
	if err := write(c, make([]byte, 64<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v, must be the deadline", err)
	}
	_ = c.SetWriteDeadline(time.Time{})
	ended := make(chan error)
	go func() { ended <- write(c, make([]byte, 64<<20)) }()
	_ = c.Close()
	if err := <-ended; !errors.Is(err, unix.EPIPE) && !errors.Is(err, net.ErrClosed) {
		t.Errorf("%v, must be a broken pipe", err)
	}
}

// TestLimit: no more are taken than allowed, and a slot is free again when its connection is closed
// and not in use.
func TestLimit(t *testing.T) {
	first, peer := pair(t, 0)
	raw, err := peer.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if Take(raw, 1, 0) != nil {
		t.Fatal("a second connection was taken, one is allowed")
	}
	_ = peer.SetReadDeadline(time.Time{}) // it remains usable
	_ = first.Control(func(uintptr) {
		_ = first.Close()
		if Take(raw, 1, 0) != nil {
			t.Error("the place of a connection that is in use was free")
		}
	})
	second := Take(raw, 1, 0)
	if second == nil {
		t.Fatal("the place of a closed connection is not free")
	}
	_ = second.Close()
	for name, err := range map[string]error{
		"Read": second.Read(nil), "Write": second.Write(nil), "Control": second.Control(nil), "SetReadDeadline": second.SetReadDeadline(time.Now()),
		"CloseWrite": second.CloseWrite(), "SetLinger": second.SetLinger(0), "Close": second.Close(),
	} {
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
}

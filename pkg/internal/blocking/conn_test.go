package blocking

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// connect returns both ends of a TCP connection.
func connect(t *testing.T) (ours, theirs *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return a.(*net.TCPConn), b.(*net.TCPConn)
}

// limited returns a Conn and its peer.
func limited(t *testing.T, limit int, spin time.Duration) (*Conn, *net.TCPConn) {
	t.Helper()
	ours, theirs := connect(t)
	c, err := New(ours, limit, spin)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c, theirs
}

// pair returns a Conn that blocks, and its peer.
func pair(t *testing.T, spin time.Duration) (*Conn, *net.TCPConn) {
	t.Helper()
	c, theirs := limited(t, 1000, spin)
	if !c.Blocks() {
		t.Fatal("the connection has no thread")
	}
	return c, theirs
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
	t.Run("blocks", func(t *testing.T) {
		c, peer := pair(t, 0)
		readsAndWrites(t, c, peer)
	})
	t.Run("spins", func(t *testing.T) {
		c, peer := pair(t, time.Millisecond)
		readsAndWrites(t, c, peer)
	})
	t.Run("polls", func(t *testing.T) {
		c, peer := limited(t, -1, 0)
		readsAndWrites(t, c, peer)
	})
}

func readsAndWrites(t *testing.T, c *Conn, peer *net.TCPConn) {
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
		for _, how := range []string{"first", "busy", "spinning", "polling"} {
			t.Run(name+"/"+how, func(t *testing.T) {
				spin := time.Duration(0)
				if how == "spinning" {
					spin = time.Minute
				}
				limit := 1000
				if how == "polling" {
					limit = -1
				}
				conn, peer := limited(t, limit, spin)
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
	for range 4 {
		if c.Blocks() { // both ways in turn
			c.unblock()
		}
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

// TestModes: a connection goes on with its deadlines and its bytes, whichever way it waits, and
// descriptors do not pile up.
func TestModes(t *testing.T) {
	c, peer := pair(t, 0)
	files := openFiles(t)
	for i := range 200 {
		_, _ = peer.Write([]byte("before"))
		c.claim.limit = 1000
		if i%2 == 0 {
			c.claim.limit = -1
			c.unblock()
		}
		if got, err := read(c); string(got) != "before" || err != nil {
			t.Fatalf("step %d: %q, %v", i, got, err)
		}
		if c.Blocks() != (i%2 == 1) {
			t.Fatalf("step %d: it blocks: %v", i, c.Blocks())
		}
	}
	if n := openFiles(t); n > files {
		t.Errorf("%d open files, %d before", n, files)
	}
}

// openFiles counts the descriptors of the process.
func openFiles(t *testing.T) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(d)
}

// TestIdleGives: a connection that has a thread and waits loses it to a busy one, and both go on.
// When the other is idle, it comes back.
func TestIdleGives(t *testing.T) {
	limit := len(threads.holders) + 1
	var conns [2]*Conn
	var peers [2]*net.TCPConn
	var ended sync.WaitGroup
	defer func() {
		for _, c := range conns {
			_ = c.Close()
		}
		ended.Wait()
	}()
	for i := range conns {
		conns[i], peers[i] = limited(t, limit, 0)
		ended.Go(func() { // echoes, and says whether it blocks
			for {
				got, err := read(conns[i])
				if err != nil {
					return
				}
				got[0] = 'p'
				if conns[i].Blocks() {
					got[0] = 'b'
				}
				if write(conns[i], got) != nil {
					return
				}
			}
		})
	}
	buf := make([]byte, 1)
	for _, busy := range []int{1, 0, 1} {
		buf[0] = 'p'
		for n := 0; buf[0] != 'b'; n++ {
			if n > 1e6 {
				t.Fatalf("connection %d does not get the other's thread", busy)
			}
			if _, err := peers[busy].Write(buf); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(peers[busy], buf); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, peer := range peers {
		if _, err := peer.Write(buf); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(peer, buf); err != nil {
			t.Fatal(err)
		}
		if want := "pb"[i]; buf[0] != want {
			t.Errorf("connection %d is %c, want %c", i, buf[0], want)
		}
	}
}

// TestClosed: a closed connection gives its thread back when it is not in use, and refuses
// everything.
func TestClosed(t *testing.T) {
	before := threads.held.Load()
	for _, limit := range []int{1000, -1} {
		c, _ := limited(t, limit, 0)
		if c.Blocks() {
			_ = c.Control(func(uintptr) {
				_ = c.Close()
				if threads.held.Load() != before+1 {
					t.Error("the thread of a connection that is in use was free")
				}
			})
		} else {
			_ = c.Close()
		}
		if n := threads.held.Load(); n != before {
			t.Errorf("%d threads after Close, %d before", n, before)
		}
		for name, err := range map[string]error{
			"Read": c.Read(nil), "Write": c.Write(nil), "Control": c.Control(nil), "SetReadDeadline": c.SetReadDeadline(time.Now()),
			"SetWriteDeadline": c.SetWriteDeadline(time.Now()), "CloseWrite": c.CloseWrite(), "SetLinger": c.SetLinger(0), "Close": c.Close(),
		} {
			if !errors.Is(err, net.ErrClosed) {
				t.Errorf("%s after Close: %v", name, err)
			}
		}
	}
}

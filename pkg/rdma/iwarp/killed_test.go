package iwarp

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestKilled: the connections of a process that ends without closing them are reset, even with
// nothing unread; see newSocket.
func TestKilled(t *testing.T) {
	peer := exec.Command(os.Args[0])
	peer.Env = append(os.Environ(), benchPeer+"=plain")
	peer.Stderr = os.Stderr
	in, err := peer.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := peer.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := peer.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); _ = peer.Wait() })
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", strings.TrimSpace(address))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	req := linuxRequest()
	if _, err := c.Write(req.append(nil)); err != nil {
		t.Fatal(err)
	}
	if _, err := readMPA(c, true); err != nil {
		t.Fatal(err)
	}
	in.Close() // the peer exits at once
	if _, err := io.Copy(io.Discard, c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection ended with %v, must be reset", err)
	}
}

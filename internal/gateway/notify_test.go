package gateway

import (
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestNotify: the service manager learns when the gateway serves, and when it stops.
func TestNotify(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	t.Setenv("NOTIFY_SOCKET", socket)
	next := func() string {
		if err := manager.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 100)
		n, err := manager.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
	p := startProcess(t, volumeArgs(t)...)
	if got := next(); got != "READY=1" {
		t.Errorf("the first message is %q", got)
	}
	p.signal(syscall.SIGTERM)
	if got := next(); got != "STOPPING=1" {
		t.Errorf("the second message is %q", got)
	}
	if code := p.exits(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	t.Setenv("NOTIFY_SOCKET", socket+"-missing")
	if err := notify(notifyReady); err == nil {
		t.Error("a message to nobody was sent")
	}
}

//go:build verbs

package verbs

import (
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/bufpool"
)

// TestCredentials: connections are made and survive in a program whose threads have acted as other
// users, and with repeated polls of an empty queue.
func TestCredentials(t *testing.T) {
	if *address == "" {
		t.Skip("no -address: the test runs in the guest, by make test-verbs")
	}
	p, err := New(Config{Spin: 64})
	if err != nil {
		t.Fatal(err)
	}
	const threads = 32 // more than Go will use for the rest
	var all sync.WaitGroup
	all.Add(threads)
	for range threads {
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			_, _, _ = syscall.RawSyscall(unix.SYS_SETFSUID, 1234, 0, 0)
			_, _, _ = syscall.RawSyscall(unix.SYS_SETFSUID, 0, 0, 0)
			all.Done()
			all.Wait() // so that each has a thread of its own
		}()
	}
	all.Wait()
	c := connectPair(t, p, p, bufpool.New(0), 0, false)
	select {
	case <-c.ends[0].enough:
	case err := <-c.served[0]:
		t.Fatalf("the dialer ended: %v", err)
	case err := <-c.served[1]:
		t.Fatalf("the acceptor ended: %v", err)
	case <-time.After(30 * time.Second):
		t.Fatalf("only %d messages came back", c.ends[0].got.Load())
	}
	c.end(t)
}

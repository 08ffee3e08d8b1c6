package oncrpc

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
)

// wire is a socket in memory whose peer is the test.
type wire struct {
	script
	says chan []byte
	gone chan struct{}
	shut bool // by closeWrite
	// taking is the number of bytes that the peer takes in a second: 0 is all.
	taking int
}

func (w *wire) write(bufs [][]byte, wait bool, deadline time.Time) (int, error) {
	if w.taking == 0 {
		return w.script.write(bufs, wait, deadline)
	}
	if !wait {
		return 0, nil
	}
	select {
	case <-time.After(time.Second):
		n, err := w.script.write(bufs, wait, deadline)
		return min(w.taking, n), err
	case <-w.gone:
		return 0, net.ErrClosed
	}
}

func (w *wire) read(r *reader) (int, error) {
	for len(w.script.says) == 0 {
		select {
		case b, ok := <-w.says:
			if !ok {
				return 0, io.EOF
			}
			w.script.says = b
		case <-w.gone:
			return 0, net.ErrClosed
		}
	}
	return w.script.read(r)
}

func (w *wire) closeWrite() error { w.shut = true; return nil }
func (w *wire) close() error      { close(w.gone); return nil }

// onWire serves a connection in memory, and returns when its first read waits.
func onWire(t *testing.T, cfg Config, service Handler) (*link, *wire) {
	t.Helper()
	return onWireFrom(t, cfg, service, &net.TCPAddr{})
}

func onWireFrom(t *testing.T, cfg Config, service Handler, from net.Addr) (*link, *wire) {
	t.Helper()
	cfg.Pool, cfg.Handler = bufpool.New(0), service
	if err := cfg.defaults(); err != nil {
		t.Fatal(err)
	}
	w := &wire{script: script{cut: 1 << 20}, says: make(chan []byte), gone: make(chan struct{})}
	l := newLink(&cfg, w, &net.TCPAddr{}, from)
	go l.serve()
	t.Cleanup(func() {
		<-l.done
		synctest.Wait()
		if err := cfg.Pool.Close(); err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
	return l, w
}

// TestBusy: a connection is busy while it executes a call, waits for a reply or for bulk memory. A
// message without end does not count.
func TestBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := bufpool.NewBudget(2<<20, 2<<20)
		service := &testService{held: make(chan *Call, 1)}
		l, w := onWire(t, Config{Budget: budget}, service)
		busy := func(when string, want bool) {
			t.Helper()
			time.Sleep(time.Hour)
			synctest.Wait()
			if got := l.Busy(); got != want || l.err() != nil {
				t.Errorf("%s: busy %v, want %v; the connection ended with %v", when, got, want, l.err())
			}
		}
		busy("silent", false)

		w.says <- marked(callBytes(1, procHold))
		c := <-service.held
		busy("a call that takes long", true)
		c.ReplyAccept(Success)
		busy("its reply has left", false)

		r, _ := newCall(t, l.cfg.Pool, procNull, 100)
		done := make(chan error, 1)
		r.Done = func(r *Request) { done <- r.Err }
		if err := r.Seal(); err != nil {
			t.Fatal(err)
		}
		r.SetXID(5)
		l.Submit(r)
		busy("a request that takes long", true)
		w.says <- marked(unhex(t, "00000005 00000001 00000000 00000000 00000000 00000000"))
		if err := <-done; err != nil {
			t.Error(err)
		}
		r.Free()
		busy("it has its reply", false)

		var g bufpool.Grant
		if ok, err := budget.Share(netip.Addr{}, nil).Acquire(&g, 2<<20, func() {}); !ok || err != nil {
			t.Fatal(ok, err)
		}
		w.says <- marked(append(callBytes(7, procSum, 100_000), make([]byte, 100_000)...))
		busy("a call that waits for bulk memory", true)
		sent := l.stats.recordsOut.Load()
		g.Release()
		synctest.Wait()
		if n := l.stats.recordsOut.Load(); n != sent+1 {
			t.Errorf("%d replies after the memory was free, want 1", n-sent)
		}
		w.says <- marked(append(callBytes(8, procSum, 1_000), make([]byte, 1_000)...))[:50]
		busy("a message without end", false)
		close(w.says)
	})
}

// TestLinger: after the last reply the peer has a second to hang up.
func TestLinger(t *testing.T) {
	for _, hangsUp := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			service := &testService{held: make(chan *Call, 1)}
			l, w := onWire(t, Config{}, service)
			w.says <- marked(callBytes(1, procHold))
			c := <-service.held
			l.drain()
			time.Sleep(time.Hour)
			if w.shut || l.err() != nil {
				t.Fatalf("ended with a call in flight: %v", l.err())
			}
			c.ReplyAccept(Success)
			synctest.Wait()
			if !w.shut || l.err() != nil {
				t.Fatalf("our half is closed: %v, the connection ended with %v", w.shut, l.err())
			}
			w.says <- marked(callBytes(2, procHold)) // too late
			synctest.Wait()
			if hangsUp {
				close(w.says)
			} else {
				time.Sleep(lingerTime)
			}
			synctest.Wait()
			if err := l.err(); !errors.Is(err, ErrShutdown) || len(service.held) != 0 {
				t.Errorf("ended with %v, %d late calls were executed", err, len(service.held))
			}
		})
	}
}

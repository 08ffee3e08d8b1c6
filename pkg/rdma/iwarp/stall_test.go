package iwarp

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/rdma"
)

// waits are an endpoint's ways to wait.
var waits = map[string]Config{"poller": {Threads: -1}, "thread": {Threads: 1000}, "poller without CRC": {Threads: -1, CRC: CRCOff}}

// TestStall: a peer does not read the bytes sent to it, far more than sockets hold. Posting does
// not block, the endpoint goes on receiving, and in the end everything arrives as posted.
func TestStall(t *testing.T) {
	for name, cfg := range waits {
		t.Run(name, func(t *testing.T) {
			const writes, size, sends = 12, 4 << 20, 200
			p, e := dialRaw(t, cfg, linuxRequest(), rdma.Options{Receives: receives(sends+1, 50), ORD: 1})
			p.hello(e)
			data := noise(4, size)
			for i := range writes {
				e.post(t, rdma.WorkRequest{ID: uint64(i), Op: rdma.Write, Signaled: true, Local: [][]byte{data[:size/3], data[size/3:]}, Remote: rdma.Remote{Handle: uint32(i)}})
			}
			for range sends {
				p.write(p.fpdus(p.send([]byte("still there?"))))
				if c := await(t, "message while the socket is full", e.done); c.Bytes != 12 {
					t.Fatalf("%+v", c)
				}
			}
			e.post(t, rdma.WorkRequest{ID: writes, Op: rdma.Send, Signaled: true, Local: [][]byte{data[:10]}})
			sent := uint64(0)
			for len(e.sent) > 0 { // the first few may be in the socket
				if id := <-e.sent; id != sent {
					t.Fatalf("%d was sent, want %d", id, sent)
				}
				sent++
			}
			if sent > writes/2 {
				t.Errorf("%d of %d are sent, though nobody reads", sent, writes)
			}
			got := make([]byte, 0, size)
			for i := uint32(0); i < writes; {
				u := p.next()
				h, n, err := parseTagged(u)
				if err != nil || h.stag != i || h.to != uint64(len(got)) {
					t.Fatalf("%+v, %v; want STag %d, offset %d", h, err, i, len(got))
				}
				got = append(got, u[n:]...)
				if h.last {
					if !bytes.Equal(got, data) {
						t.Fatalf("Write %d came wrong", i)
					}
					got = got[:0]
					i++
				}
			}
			if u := p.next(); !bytes.Equal(u[untaggedLen:], data[:10]) {
				t.Errorf("%x", u)
			}
			for ; sent <= writes; sent++ {
				if id := await(t, "Sent", e.sent); id != sent {
					t.Fatalf("%d was sent, want %d", id, sent)
				}
			}
		})
	}
}

// TestCloseWhileStalled: Close does not wait for a peer that does not read.
func TestCloseWhileStalled(t *testing.T) {
	for name, cfg := range waits {
		t.Run(name, func(t *testing.T) {
			p, e := dialRaw(t, cfg, linuxRequest(), rdma.Options{Receives: receives(1, 50), ORD: 1})
			p.hello(e)
			data := memory(4 << 20)
			for range 12 {
				e.post(t, rdma.WorkRequest{Op: rdma.Write, Local: [][]byte{data}})
			}
			if err := e.Close(); err != nil {
				t.Error(err)
			}
			err := await(t, "end of Serve", e.err)
			e.err <- err
			if !errors.Is(err, net.ErrClosed) {
				t.Errorf("Serve returned %v", err)
			}
		})
	}
}

// TestPeerGoesWhileStalled: an error of sending hides neither the peer's disconnection nor its
// earlier messages.
func TestPeerGoesWhileStalled(t *testing.T) {
	for name, cfg := range waits {
		t.Run(name, func(t *testing.T) {
			p, e := dialRaw(t, cfg, linuxRequest(), rdma.Options{Receives: receives(2, 50), ORD: 1})
			p.hello(e)
			data := memory(4 << 20)
			for range 12 {
				e.post(t, rdma.WorkRequest{Op: rdma.Write, Local: [][]byte{data}})
			}
			p.write(p.fpdus(p.send([]byte("bye"))))
			_ = p.c.CloseWrite()
			if c := await(t, "last message", e.done); c.Bytes != 3 {
				t.Errorf("%+v", c)
			}
			err := await(t, "end of Serve", e.err)
			e.err <- err
			if !errors.Is(err, io.EOF) {
				t.Errorf("Serve returned %v", err)
			}
		})
	}
}

// TestInvalidateWhileIdle: a LocalInvalidate completes although nothing arrives, also right after
// an arrival.
func TestInvalidateWhileIdle(t *testing.T) {
	for name, cfg := range waits {
		t.Run(name, func(t *testing.T) {
			p, e := dialRaw(t, cfg, linuxRequest(), rdma.Options{Receives: receives(9, 50), ORD: 1})
			for i := range 8 {
				p.hello(e)
				if i%2 == 0 {
					// until the loop stops polling; both ways must work
					time.Sleep(5 * time.Millisecond)
				}
				r := e.expose(t, memory(10), rdma.RemoteRead)
				e.post(t, rdma.WorkRequest{ID: uint64(i), Op: rdma.LocalInvalidate, Invalidate: r.Handle})
				if c := await(t, "invalidation", e.done); c.ID != uint64(i) || c.Op != rdma.LocalInvalidate {
					t.Errorf("%+v", c)
				}
			}
		})
	}
}

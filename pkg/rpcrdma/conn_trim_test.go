package rpcrdma

import (
	"sync"
	"testing"

	"sluice.dev/sluice/pkg/rdma/iwarp"
)

// only returns the connection of the server.
func (w *env) only() (only *Conn) {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	for c := range w.server.conns {
		only = c
	}
	return only
}

// hang makes n calls that the handler keeps, and returns when it has them. answered waits for the
// replies.
func (w *env) hang(c *Client, n int) (answered func()) {
	w.t.Helper()
	var calls sync.WaitGroup
	for range n {
		calls.Go(func() {
			if err := null(c, w.cpool, procHang); err != nil {
				w.t.Error(err)
			}
		})
	}
	eventually(w.t, "all calls are with the handler", func() bool {
		w.handler.mu.Lock()
		defer w.handler.mu.Unlock()
		return len(w.handler.hung) == n
	})
	return calls.Wait
}

// TestTrim: an idle connection gives back the memory of a burst, and works as before. Calls under
// way keep theirs.
func TestTrim(t *testing.T) {
	t.Run("version 1", func(t *testing.T) { testTrim(t, func(*Config) {}) })
	t.Run("all extensions", func(t *testing.T) { testTrim(t, extended(allExtensions)) })
}

func testTrim(t *testing.T, change func(*Config)) {
	p, err := iwarp.New(iwarp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	const burst, kept = 30, 3
	w := newEnvOn(t, p, change)
	c := w.dial(change)
	if err := null(c, w.cpool, procNull); err != nil { // the client has its credits
		t.Fatal(err)
	}
	server := w.only()
	calls := func() []*inCall { return *server.responder.table.Load() }
	for round := range 5 {
		answered := w.hang(c, burst)
		w.handler.release()
		answered()
		later := w.hang(c, kept)
		eventually(t, "other calls are free", func() bool { return server.responder.active.Load() == kept })
		if n := len(calls()); n < burst || n > burst+kept {
			t.Fatalf("round %d: %d calls, want %d to %d", round, n, burst, burst+kept)
		}
		server.trimIfIdle() // messages have come
		if n := len(calls()); n < burst {
			t.Fatalf("round %d: a busy connection was trimmed to %d calls", round, n)
		}
		server.trimIfIdle()
		n := 0
		for _, ic := range calls() {
			if ic != nil {
				n++
			}
		}
		if n != kept {
			t.Fatalf("round %d: %d calls when idle, want the %d under way", round, n, kept)
		}
		w.handler.release()
		later()
	}
	if err := null(c, w.cpool, procNull); err != nil {
		t.Fatal(err)
	}
	eventually(t, "other calls are free", func() bool { return server.responder.active.Load() == 0 })
	server.trimIfIdle()
	server.trimIfIdle()
	if n := len(calls()); n != 0 {
		t.Errorf("%d calls when idle, want none", n)
	}
	testShapes(w, c)
	w.close(c)
}

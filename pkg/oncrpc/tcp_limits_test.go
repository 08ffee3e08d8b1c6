package oncrpc

import (
	"encoding/binary"
	"hash/crc32"
	"maps"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
)

// TestTCPMaxCalls: at the bound of calls reading pauses, and it continues when a call ends.
func TestTCPMaxCalls(t *testing.T) {
	var seen events
	s := startServer(t, Config{MaxCalls: 2, Observer: &seen})
	conn := dialRaw(t, s.addr)
	var burst []byte
	for i := range uint32(5) {
		burst = append(burst, marked(callBytes(i, procHold))...)
	}
	if _, err := conn.Write(burst); err != nil {
		t.Fatal(err)
	}
	for i := range uint32(5) {
		c := <-s.service.held
		if n := seen.count(&seen.received)(); n > int(i)+2 {
			t.Errorf("%d calls in flight", n-int(i))
		}
		c.ReplyAccept(Success)
		if got := readRecord(t, conn); binary.BigEndian.Uint32(got) != i {
			t.Errorf("reply is %x", got)
		}
	}
}

// TestTCPBulkBudget: a large call holds nothing while it waits for its memory, and a lost
// connection gives its memory back.
func TestTCPBulkBudget(t *testing.T) {
	budget := bufpool.NewBudget(2<<20, 2<<20)
	s := startServer(t, Config{Budget: budget, MaxRecord: 2 << 20})
	var g bufpool.Grant
	if ok, err := budget.Share(netip.Addr{}, nil).Acquire(&g, 2<<20, func() {}); !ok || err != nil {
		t.Fatal(ok, err)
	}
	large := func(conn net.Conn) {
		if _, err := conn.Write(marked(append(callBytes(7, procSum, 100_000), make([]byte, 100_000)...))); err != nil {
			t.Fatal(err)
		}
	}
	gone, stays := dialRaw(t, s.addr), dialRaw(t, s.addr)
	large(gone)
	waitFor(t, func() bool { return budget.Waiting() == 1 })
	large(stays)
	waitFor(t, func() bool { return budget.Waiting() == 2 })
	other, pool := dial(t, s.addr, Config{})
	echo(t, other, pool, fill(100, 1)) // small calls do not wait
	s.mu.Lock()
	for l := range s.links {
		if l.conn.Remote == addrPort(gone.LocalAddr()) {
			go l.fail(net.ErrClosed)
		}
	}
	s.mu.Unlock()
	waitFor(t, func() bool { return budget.Waiting() == 1 })
	g.Release()
	if got := readRecord(t, stays); len(got) != MinReplyLen+4 {
		t.Errorf("reply is %x", got)
	}
	waitFor(t, func() bool { return budget.Used() == 0 && budget.Waiting() == 0 })

	// The memory of a record that is never completed is given back with its connection.
	if _, err := stays.Write(marked(append(callBytes(8, procSum, 100_000), make([]byte, 100_000)...))[:firstPart+100]); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return budget.Used() > 100_000 })
	_ = stays.Close()
	waitFor(t, func() bool { return budget.Used() == 0 })
}

// TestTCPReplyBudget: calls whose replies may be large wait for the memory of these.
func TestTCPReplyBudget(t *testing.T) {
	const size = 1 << 20
	budget := bufpool.NewBudget(4*size, 2*size)
	s := startServer(t, Config{Budget: budget, Bindings: bulkBindings, MaxRecord: 2 * size})
	conn := dialRaw(t, s.addr)
	var burst []byte
	for i := range uint32(5) {
		burst = append(burst, marked(callBytes(i, procHold, size))...)
	}
	if _, err := conn.Write(burst); err != nil {
		t.Fatal(err)
	}
	for i := range uint32(5) {
		if i < 3 {
			// The last call's share may be given back at this moment.
			waitFor(t, func() bool { return budget.Waiting() == 1 && budget.Used() == 2*size })
		}
		c := <-s.service.held
		if c.XID != i {
			t.Errorf("call %d comes in the place of %d", c.XID, i)
		}
		c.ReplyAccept(Success)
		if got := readRecord(t, conn); binary.BigEndian.Uint32(got) != i {
			t.Errorf("reply is %x", got)
		}
	}
	waitFor(t, func() bool { return budget.Used() == 0 })

	// A large call takes both. Small ones take nothing, and a reply without a bound counts as the
	// largest record.
	var g bufpool.Grant
	if ok, err := budget.Share(netip.Addr{}, nil).Acquire(&g, 3*size, func() {}); !ok || err != nil {
		t.Fatal(ok, err)
	}
	c, pool := dial(t, s.addr, Config{MaxRecord: 2 * size})
	echo(t, c, pool, fill(500_000, 1))
	for _, n := range []uint32{smallRecord, 1 << 31} {
		if _, err := conn.Write(marked(callBytes(9, procHold, n))); err != nil {
			t.Fatal(err)
		}
		if n > smallRecord {
			waitFor(t, func() bool { return budget.Waiting() == 1 })
			g.Release()
		}
		(<-s.service.held).ReplyAccept(Success)
		_ = readRecord(t, conn)
	}
	waitFor(t, func() bool { return budget.Used() == 0 })
}

// TestTCPReplyBudgetOfLargeCall: a large call whose reply may be large too counts as retained while
// other calls of its connection are in its way.
func TestTCPReplyBudgetOfLargeCall(t *testing.T) {
	const small, size = smallRecord + 4, 500_000
	budget := bufpool.NewBudget(4<<20, 1<<20)
	s := startServer(t, Config{Budget: budget, Bindings: bulkBindings, MaxRecord: 2 << 20})
	conn := dialRaw(t, s.addr)
	if _, err := conn.Write(marked(callBytes(1, procHold, small))); err != nil {
		t.Fatal(err)
	}
	first := <-s.service.held
	call := append(callBytes(2, procHold, 1<<20), make([]byte, size)...)
	if _, err := conn.Write(marked(call)); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	links := slices.Collect(maps.Keys(s.links))
	s.mu.Unlock()
	waitFor(t, func() bool {
		l := links[0]
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.full
	})
	if used := budget.Used(); used < size || budget.Waiting() != 0 {
		t.Errorf("%d bytes are taken, the call alone has %d; %d wait", used, len(call), budget.Waiting())
	}
	first.ReplyAccept(Success)
	_ = readRecord(t, conn)
	second := <-s.service.held
	if used := budget.Used(); used < size+1<<20 {
		t.Errorf("%d bytes are taken for a call of %d and a reply of %d", used, len(call), 1<<20)
	}
	second.ReplyAccept(Success)
	_ = readRecord(t, conn)
	waitFor(t, func() bool { return budget.Used() == 0 })
}

// TestTCPSlowReader: a peer that does not take its replies delays no other one, and is disconnected
// in the end.
func TestTCPSlowReader(t *testing.T) {
	var seen events
	s := startServer(t, Config{WriteTimeout: 50 * time.Millisecond, Observer: &seen})
	slow := dialRaw(t, s.addr)
	var burst []byte
	for i := range uint32(40) {
		burst = append(burst, marked(callBytes(i, procGet, 1<<20))...)
	}
	if _, err := slow.Write(burst); err != nil {
		t.Fatal(err)
	}
	c, pool := dial(t, s.addr, Config{})
	echo(t, c, pool, fill(10, 1))
	waitFor(t, func() bool { return seen.count(&seen.closed)() == 1 })
	echo(t, c, pool, fill(10, 1))
}

// TestTCPBackpressure: replies that do not fit into the socket leave as the peer takes them, each
// in one piece.
func TestTCPBackpressure(t *testing.T) {
	s := startServer(t, Config{})
	conn := dialRaw(t, s.addr)
	const calls, size = 60, 1 << 19
	var burst []byte
	for i := range uint32(calls) {
		burst = append(burst, marked(callBytes(i, procGet, size))...)
	}
	if _, err := conn.Write(burst); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return s.Stats().BytesOut > 0 })
	want := crc32.ChecksumIEEE(fill(size, size))
	seen := map[uint32]bool{}
	for range calls {
		got := readRecord(t, conn)
		seen[binary.BigEndian.Uint32(got)] = true
		if crc32.ChecksumIEEE(got[MinReplyLen+4:MinReplyLen+4+size]) != want {
			t.Fatal("a reply is garbled")
		}
	}
	if len(seen) != calls {
		t.Errorf("%d different replies", len(seen))
	}
}

// TestTCPIdleMemory: an idle connection holds no memory of the pool, but for its last read while a
// view of it is in use.
func TestTCPIdleMemory(t *testing.T) {
	s := startServer(t, Config{})
	c, pool := dial(t, s.addr, Config{})
	for range 3 {
		echo(t, c, pool, fill(1000, 1))
		waitFor(t, func() bool { return s.pool.Stats().Bufs == 0 })
	}
}

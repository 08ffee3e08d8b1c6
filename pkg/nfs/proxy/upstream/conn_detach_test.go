package upstream

import (
	"net/netip"
	"slices"
	"testing"
	"time"
)

// TestDetached checks that a returning client gets its connection back, with the calls in flight.
func TestDetached(t *testing.T) {
	withEnv(t, Config{}, func(b *env) {
		d := b.dialer
		lk := b.Open(client(1), nil)
		for xid := uint32(1); xid <= 3; xid++ {
			b.call(lk, xid, xid, nil)
		}
		c := d.conn(t, 0)
		lk.Close()
		b.call(lk, 9, 9, nil)
		b.want(bad(9, 9, ErrClosed))
		lk.Close()
		pass(59 * time.Second)
		c.reply(1)
		b.want(ok(1, 1)) // the client is gone
		lk = b.Open(client(2), nil)
		b.call(lk, 4, 4, nil)
		b.call(lk, 2, 2, nil)
		if got := c.sent(); !slices.Equal(got, []uint32{1, 2, 3, 4}) {
			t.Errorf("sent %v", got)
		}
		for xid := uint32(2); xid <= 4; xid++ {
			c.reply(xid)
		}
		b.want(bad(2, 2, ErrSuperseded), ok(2, 2), ok(3, 3), ok(4, 4))
		pass(time.Hour)
		if err := c.Err(); err != nil {
			t.Errorf("closed in the client's hands: %v", err)
		}
		if st := b.Status(); st.Links != 1 || st.Detached != 0 {
			t.Errorf("status %+v", st)
		}

		// The client does not return in time.
		b.call(lk, 5, 5, nil)
		lk.Close()
		pass(time.Minute - 1)
		b.want()
		pass(1)
		b.want(bad(5, 5, ErrClosed))
		if c.Err() == nil {
			t.Error("kept longer than a minute")
		}
		if st := b.Status(); st.Links != 0 || st.Detached != 0 || st.Ports != 0 {
			t.Errorf("status %+v", st)
		}
	})
}

// TestDetachedBreaks checks that a broken detached connection is dialled when its client returns,
// from the same port, and resends nothing by itself.
func TestDetachedBreaks(t *testing.T) {
	withEnv(t, Config{}, func(b *env) {
		lk := b.Open(client(1), nil)
		b.call(lk, 1, 1, nil)
		c := b.dialer.conn(t, 0)
		lk.Close()
		c.end(errBroken)
		b.want(bad(1, 1, ErrClosed))
		pass(30 * time.Second)
		if at, _, _ := b.dialer.made(); len(at) != 1 {
			t.Error("dialled for nobody")
		}
		lk = b.Open(client(2), nil)
		b.call(lk, 1, 1, nil)
		c = b.dialer.conn(t, 1)
		c.reply(1)
		b.want(ok(1, 1))
		if c.port != firstPort {
			t.Errorf("port %d, want %d", c.port, firstPort)
		}
	})
}

// TestDetachedLimit checks that connections stay detached only while the unanswered calls of a
// client that reconnects repeatedly remain below the limit.
func TestDetachedLimit(t *testing.T) {
	const turns, calls, limit = 50, 20, 100 << 10
	for _, tt := range []struct {
		name string
		xid  func(turn, i int) uint32
		arg  func(turn int) uint32
	}{
		{"other calls", func(turn, i int) uint32 { return uint32(turn*calls + i) }, func(int) uint32 { return 0 }},
		{"the same calls again", func(turn, i int) uint32 { return uint32(turn/2*calls + i) }, func(int) uint32 { return 0 }},
		{"others with the same XIDs", func(turn, i int) uint32 { return uint32(turn/2*calls + i) }, func(turn int) uint32 { return uint32(turn) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			withEnv(t, Config{WaitLimit: limit}, func(b *env) {
				ended := 0
				for turn := range turns {
					lk := b.Open(client(uint16(turn)), nil)
					for i := range calls {
						b.call(lk, tt.xid(turn, i), tt.arg(turn), nil)
					}
					ended += len(b.results())
					lk.Close()
					ended += len(b.results())
					if st := b.Status(); st.OrphanedBytes > limit || int64((turn+1)*calls-ended)*callCost > limit {
						t.Fatalf("after turn %d: %d calls have not ended: %+v", turn, (turn+1)*calls-ended, st)
					}
				}
				b.dialer.mu.Lock()
				dialled := len(b.dialer.conns)
				b.dialer.mu.Unlock()
				if dialled < 2 || dialled > turns/2 {
					t.Errorf("%d connections in %d turns: some of them must have been kept, and some not", dialled, turns)
				}

				pass(time.Minute)
				if st := b.Status(); st.OrphanedBytes != 0 {
					t.Errorf("after a minute: %+v", st)
				}
			})
		})
	}
}

// TestReattach checks which connections are detached, and which links get them.
func TestReattach(t *testing.T) {
	harmless := func(r *Request) { r.Replay = ReplayHarmless }
	for _, tt := range []struct {
		name  string
		kinds []func(*Request)
		kept  bool
	}{
		{"by XID", []func(*Request){harmless, nil}, true},
		{"by session", []func(*Request){harmless, bySession}, false},
		{"both", []func(*Request){nil, bySession}, false},
		{"neither", []func(*Request){harmless}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			withEnv(t, Config{}, func(b *env) {
				lk := b.Open(client(1), nil)
				for i, k := range tt.kinds {
					b.call(lk, uint32(i), 0, k)
					b.dialer.conn(t, 0).reply(uint32(i))
				}
				b.results()
				lk.Close()
				if got := b.dialer.conn(t, 0).Err() == nil; got != tt.kept || b.Status().Detached == 1 != tt.kept {
					t.Errorf("detached: %v, want %v", got, tt.kept)
				}
			})
		})
	}
	t.Run("whose", func(t *testing.T) {
		withEnv(t, Config{MaxDetached: 3}, func(b *env) {
			var links []*Link
			for i := range uint32(4) {
				lk := b.Open(client(uint16(i)), nil)
				b.call(lk, 100+i, 0, nil)
				b.dialer.conn(t, int(i)).reply(100 + i)
				links = append(links, lk)
			}
			for _, lk := range links {
				lk.Close()
			}
			b.results()
			if st := b.Status(); st.Detached != 3 || b.dialer.conn(t, 0).Err() == nil {
				t.Errorf("status %+v; the oldest detached connection must be closed", st)
			}
			stranger := client(1)
			stranger.Remote = netip.MustParseAddrPort("192.0.2.8:1")
			for i, c := range []struct {
				lk   *Link
				xid  uint32
				how  func(*Request)
				conn int
			}{
				{b.Open(stranger, nil), 102, nil, 4},        // another address
				{b.Open(client(9), nil), 102, bySession, 5}, // by session
				{b.Open(client(9), nil), 103, nil, 3},       // known XID
				{b.Open(client(9), nil), 50_000, nil, 1},    // unknown XID: the oldest
				{b.Open(client(9), nil), 101, nil, 2},       // the last
				{b.Open(client(9), nil), 50_001, nil, 6},    // none is left
			} {
				b.call(c.lk, c.xid, 0, c.how)
				if !b.dialer.conn(t, c.conn).reply(c.xid) {
					t.Errorf("call %d did not come by connection %d", i, c.conn)
				}
			}
			b.results()
		})
	})
}

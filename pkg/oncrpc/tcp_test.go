package oncrpc

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"

	"sluice.dev/sluice/pkg/bufpool"
)

func TestTCP(t *testing.T) {
	s := startServer(t, Config{MaxRecord: 8 << 20})
	c, pool := dial(t, s.addr, Config{MaxRecord: 8 << 20})
	for _, n := range []int{0, 1, 2, 3, 4, 100, 16<<10 - 100, 16 << 10, 17 << 10, 64 << 10, 1 << 20} {
		echo(t, c, pool, fill(n, 1))
	}
	for _, n := range []int{0, 1, 4093, 100_001, 1 << 20, 5 << 20} {
		r, e := newCall(t, pool, procGet, 100)
		e.Uint32(uint32(n))
		if err := Do(context.Background(), c, r); err != nil {
			t.Fatal(err)
		}
		d, err := r.Results()
		if err != nil {
			t.Fatal(err)
		}
		data, length, taken := d.Bulk(8<<20, nil)
		if length != n || taken || !bytes.Equal(bytes.Join(data, nil), fill(n, n)) || d.Uint32() != 0xe0d || d.Left() != 0 || d.Err() != nil {
			t.Errorf("GET of %d bytes: %d, an item: %v, %v", n, length, taken, d.Err())
		}
		r.Free()

		r, e = newCall(t, pool, procSum, 100)
		b := fill(n, 9)
		e.Bulk([][]byte{b[:n/3], b[n/3:]}, n)
		if err := Do(context.Background(), c, r); err != nil {
			t.Fatal(err)
		}
		if d, err = r.Results(); err != nil {
			t.Fatal(err)
		}
		if sum := d.Uint32(); sum != crc32.ChecksumIEEE(b) {
			t.Errorf("SUM of %d bytes: %#x", n, sum)
		}
		r.Free()
	}
	for _, tt := range []struct {
		program, version, procedure uint32
		want                        Status
	}{
		{testProgram, 1, 99, Status{Accept: ProcUnavail}},
		{testProgram, 2, 0, Status{Accept: ProgMismatch, Low: 1, High: 1}},
		{testProgram + 1, 1, 0, Status{Accept: ProgUnavail}},
		{testProgram, 1, procEcho, Status{Accept: GarbageArgs}},
		{testProgram, 1, procLong, Status{Accept: SystemErr}},
	} {
		r, _, err := NewRequest(pool, tt.program, tt.version, tt.procedure, Auth{}, 100)
		if err != nil {
			t.Fatal(err)
		}
		if err := Do(context.Background(), c, r); err != nil {
			t.Fatal(err)
		}
		_, err = r.Results()
		var status *StatusError
		if !errors.As(err, &status) || status.Status != tt.want {
			t.Errorf("program %d version %d procedure %d: %v, want %v", tt.program, tt.version, tt.procedure, err, tt.want)
		}
		r.Free()
	}
}

// TestTCPConcurrent makes many calls of all kinds at once on several connections, in both
// directions.
func TestTCPConcurrent(t *testing.T) {
	budget := bufpool.NewBudget(6<<20, 3<<20)
	s := startServer(t, Config{MaxCalls: 20, Budget: budget, MaxRecord: 3 << 20})
	var wg sync.WaitGroup
	for k := range 3 {
		var mux Mux
		mux.Handle(testProgram, 1, 1, &testService{})
		c, pool := dial(t, s.addr, Config{Handler: &mux})
		for g := range 12 {
			wg.Go(func() {
				rnd := rand.New(rand.NewPCG(uint64(g), uint64(k)))
				for range 30 {
					switch n := rnd.IntN(1 << rnd.IntN(20)); rnd.IntN(4) {
					case 0:
						echo(t, c, pool, fill(n, g))
					case 1:
						r, e := newCall(t, pool, procGet, 100)
						e.Uint32(uint32(n))
						if err := Do(context.Background(), c, r); err != nil {
							t.Error(err)
						} else if d, err := r.Results(); err != nil {
							t.Error(err)
						} else if data, _, _ := d.Bulk(1<<20, nil); !bytes.Equal(bytes.Join(data, nil), fill(n, n)) {
							t.Errorf("GET of %d bytes is wrong", n)
						}
						r.Free()
					case 2:
						r, e := newCall(t, pool, procSum, 100)
						b := fill(n, g)
						e.Bulk([][]byte{b}, n)
						if err := Do(context.Background(), c, r); err != nil {
							t.Error(err)
						} else if d, err := r.Results(); err != nil {
							t.Error(err)
						} else if d.Uint32() != crc32.ChecksumIEEE(b) {
							t.Errorf("SUM of %d bytes is wrong", n)
						}
						r.Free()
					case 3:
						b := fill(n%1000, g)
						r, e := newCall(t, pool, procBack, 2000)
						e.Opaque(b)
						if err := Do(context.Background(), c, r); err != nil {
							t.Error(err)
						} else if d, err := r.Results(); err != nil {
							t.Error(err)
						} else if !bytes.Equal(d.Opaque(1000), b) {
							t.Error("BACK is wrong")
						}
						r.Free()
					}
				}
			})
		}
	}
	wg.Wait()
	if budget.Used() != 0 || budget.Waiting() != 0 {
		t.Errorf("bulk budget: %d used, %d waiting", budget.Used(), budget.Waiting())
	}
}

// TestTCPBatch: a burst of calls costs one read and one write at the server.
func TestTCPBatch(t *testing.T) {
	s := startServer(t, Config{})
	conn := dialRaw(t, s.addr)
	var burst []byte
	for i := range 32 {
		burst = append(burst, marked(callBytes(uint32(i), procNull))...)
	}
	if _, err := conn.Write(burst); err != nil {
		t.Fatal(err)
	}
	for i := range 32 {
		if got := readRecord(t, conn); binary.BigEndian.Uint32(got) != uint32(i) {
			t.Fatalf("reply %d is %x", i, got)
		}
	}
	waitFor(t, func() bool { return s.Stats().RecordsOut == 32 })
	if st := s.Stats(); st.RecordsIn != 32 || st.ReadCalls > 2 || st.WriteCalls > 2 {
		t.Errorf("%+v", st)
	}
}

// TestTCPBadInput: each bad peer gets the protocol's answer, and no other peer is affected.
func TestTCPBadInput(t *testing.T) {
	var seen events
	s := startServer(t, Config{MaxRecord: 100_000, Observer: &seen})
	other, pool := dial(t, s.addr, Config{})
	echo(t, other, pool, fill(10, 1))
	for _, tt := range []struct {
		name  string
		send  []byte
		reply string // "" closes the connection
	}{
		{"record too long", []byte{0x80, 1, 0x86, 0xa1}, ""},
		{"no RPC at all", []byte("GET / HTTP/1.1\r\nHost: example\r\n\r\n"), ""},
		{"empty record", marked(nil), ""},
		{"seven bytes", marked(make([]byte, 7)), ""},
		{"header cut", marked(callBytes(1, 0)[:36]), ""},
		{"message type 2", marked([]byte{0, 0, 0, 1, 0, 0, 0, 2}), ""},
		{"large of message type 9", marked(append([]byte{0, 0, 0, 1, 0, 0, 0, 9}, make([]byte, 60_000)...)), ""},
		{"RPC version 4", marked([]byte{0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 4}), "00000001 00000001 00000001 00000000 00000002 00000002"},
		{"credential too long", marked(append(callBytes(1, 0)[:28], 0, 0, 2, 0)), "00000001 00000001 00000001 00000001 00000001"},
		{"no arguments", marked(callBytes(1, procEcho)), "00000001 00000001 00000000 00000000 00000000 00000004"},
		{"length beyond the message", marked(callBytes(1, procSum, 1<<31)), "00000001 00000001 00000000 00000000 00000000 00000004"},
		{"reply to nothing", append(marked(unhex(t, "00000001 00000001 00000000 00000000 00000000 00000000")), marked(callBytes(1, 0))...), "00000001 00000001 00000000 00000000 00000000 00000000"},
		{"large reply to nothing", append(marked(append(unhex(t, "00000001 00000001"), make([]byte, 90_000)...)), marked(callBytes(1, 0))...), "00000001 00000001 00000000 00000000 00000000 00000000"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			conn := dialRaw(t, s.addr)
			if _, err := conn.Write(tt.send); err != nil {
				t.Fatal(err)
			}
			if tt.reply != "" {
				if got := readRecord(t, conn); !bytes.Equal(got, unhex(t, tt.reply)) {
					t.Errorf("reply is %x", got)
				}
				return
			}
			if n, err := conn.Read(make([]byte, 100)); n != 0 || err == nil {
				t.Errorf("answered with %d bytes", n)
			}
		})
	}
	for cut := range len(marked(callBytes(1, 0))) {
		conn := dialRaw(t, s.addr)
		if _, err := conn.Write(marked(callBytes(1, 0))[:cut]); err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
	}
	echo(t, other, pool, fill(10, 1))
	waitFor(t, func() bool { return s.connections() == 1 })
	if n := seen.count(&seen.bad)(); n != 9 {
		t.Errorf("%d bad messages were reported, want 9", n)
	}
}

func TestTCPObserver(t *testing.T) {
	var seen events
	s := startServer(t, Config{Observer: &seen, MaxConns: 1})
	c, pool := dial(t, s.addr, Config{})
	echo(t, c, pool, fill(10, 1))
	refused := dialRaw(t, s.addr)
	if _, err := refused.Read(make([]byte, 1)); err == nil {
		t.Error("a connection too many was served")
	}
	waitFor(t, func() bool { return seen.count(&seen.refused)() == 1 })
	_ = c.Close()
	waitFor(t, func() bool { return seen.count(&seen.closed)() == 1 })
	seen.mu.Lock()
	defer seen.mu.Unlock()
	if seen.opened != 1 || seen.received != 1 || seen.replied != 1 || seen.in != 56 || seen.out != 40 {
		t.Errorf("%+v", &seen)
	}
	if !errors.Is(seen.causes[0], ErrTooManyConns) || !errors.Is(seen.causes[1], io.EOF) {
		t.Errorf("causes are %v", seen.causes)
	}
}

// TestTCPFragments: a call may come in fragments of any kind.
func TestTCPFragments(t *testing.T) {
	budget := bufpool.NewBudget(2<<20, 2<<20)
	s := startServer(t, Config{Budget: budget})
	conn := dialRaw(t, s.addr)
	data := fill(200_000, 3)
	call := append(callBytes(7, procSum, uint32(len(data))), data...)
	for _, fragments := range [][]int{nil, {1, 2, 3}, {44, 100_000}, {4, 4, 32, 4}, {199_000}, {0, 0, 0}, {30_000, 30_000, 30_000}} {
		if _, err := conn.Write(marked(call, fragments...)); err != nil {
			t.Fatal(err)
		}
		if got := readRecord(t, conn); binary.BigEndian.Uint32(got[MinReplyLen:]) != crc32.ChecksumIEEE(data) {
			t.Errorf("fragments %v: reply is %x", fragments, got)
		}
	}
}

func TestTCPConfig(t *testing.T) {
	pool := bufpool.New(0)
	for _, cfg := range []Config{
		{}, {Pool: pool}, {Pool: pool, Handler: &Mux{}, MaxRecord: 10}, {Pool: pool, Handler: &Mux{}, MaxRecord: 1 << 31}, {Pool: pool, Handler: &Mux{}, MaxCalls: -1},
		{Pool: pool, Handler: &Mux{}, ReadBuffer: bufpool.MaxSize + 1}, {Pool: pool, Handler: &Mux{}, WriteTimeout: -1}, {Pool: pool, Handler: &Mux{}, MaxConns: -5},
	} {
		if _, err := NewServer(cfg); err == nil {
			t.Errorf("%+v was accepted", cfg)
		}
	}
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if _, err := NewClient(a, Config{Pool: pool}); err == nil {
		t.Error("a pipe was accepted")
	}
	if _, err := Dial(context.Background(), "127.0.0.1:1", Config{Pool: pool}); err == nil {
		t.Error("connected to nothing")
	}
}

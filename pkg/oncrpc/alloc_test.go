package oncrpc

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/internal/race"
	"sluice.dev/sluice/pkg/xdr"
)

// TestAllocs: a call over TCP allocates nothing at either end, once the objects exist.
func TestAllocs(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	budget := bufpool.NewBudget(0, 0)
	s := startServer(t, Config{Budget: budget, Bindings: bulkBindings})
	c, pool := dial(t, s.addr, Config{Bindings: bulkBindings})
	ctx := context.Background()
	fail := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	data := [][]byte{fill(100_000, 1)}
	var results [][]byte
	for name, call := range map[string]func(){
		"NULL": func() {
			r, _, err := NewRequest(pool, testProgram, 1, procNull, Auth{}, MinCallLen)
			fail(err)
			fail(Do(ctx, c, r))
			_, err = r.Results()
			fail(err)
			r.Free()
		},
		"large call": func() {
			r, e, err := NewRequest(pool, testProgram, 1, procSum, Auth{}, 100)
			fail(err)
			e.Bulk(data, len(data[0]))
			fail(Do(ctx, c, r))
			d, err := r.Results()
			fail(err)
			d.Uint32()
			r.Free()
		},
		"large reply": func() {
			r, e, err := NewRequest(pool, testProgram, 1, procPool, Auth{}, 100)
			fail(err)
			e.Uint32(100_000)
			r.Plan.Results = append(r.Plan.Results, Result{Max: 100_000})
			fail(Do(ctx, c, r))
			d, err := r.Results()
			fail(err)
			var taken bool
			results, _, taken = d.Bulk(100_000, results[:0])
			if !taken || r.Plan.Results[0].State != Placed {
				t.Fatal("the result is no item")
			}
			r.Free()
		},
	} {
		for range 50 {
			call()
		}
		if n := testing.AllocsPerRun(200, call); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// TestAllocsDeep is TestAllocs with 16 calls in flight, driven by their completions.
func TestAllocsDeep(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	s := startServer(t, Config{})
	c, pool := dial(t, s.addr, Config{})
	d := newDriver(t, c, pool)
	d.run(2000)
	if n := testing.AllocsPerRun(3, func() { d.run(5000) }); n > 5 {
		t.Errorf("%v allocations in 5000 calls", n)
	}
}

// driver keeps 16 NULL calls in flight.
type driver struct {
	t    testing.TB
	c    *Client
	done func(*Request)
	mu   sync.Mutex
	left int
	out  int
	over chan struct{}
	reqs []*Request
}

func newDriver(t testing.TB, c *Client, pool *bufpool.Pool) *driver {
	d := &driver{t: t, c: c, over: make(chan struct{}, 1)}
	d.done = d.next
	for range 16 {
		r, _, err := NewRequest(pool, testProgram, 1, procNull, Auth{}, MinCallLen)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Seal(); err != nil {
			t.Fatal(err)
		}
		r.Done = d.done
		d.reqs = append(d.reqs, r)
	}
	t.Cleanup(func() {
		for _, r := range d.reqs {
			r.Free()
		}
	})
	return d
}

func (d *driver) next(r *Request) {
	if _, err := r.Results(); err != nil {
		d.t.Error(err)
	}
	r.Reply.Release()
	d.mu.Lock()
	d.left--
	again := d.left > 0
	if !again {
		d.out--
	}
	over := d.out == 0
	d.mu.Unlock()
	if again {
		Submit(d.c, r)
	} else if over {
		d.over <- struct{}{}
	}
}

func (d *driver) run(n int) {
	d.left, d.out = n, len(d.reqs)
	for _, r := range d.reqs {
		Submit(d.c, r)
	}
	<-d.over
}

// bulkBindings is the binding of the test program: the results of GET and POOL are eligible.
func bulkBindings(program, version uint32) Binding {
	if program == testProgram && version == 1 {
		return bulkBinding{}
	}
	return nil
}

type bulkBinding struct{}

// Plan takes the first word of the arguments as the length of the result of GET, POOL and HOLD. It
// bounds ECHO's result by the length of its argument.
func (bulkBinding) Plan(p *Plan, args []Argument, procedure uint32, d *xdr.Decoder) ([]Argument, error) {
	p.Results, p.MaxReply = p.Results[:0], 8
	switch procedure {
	case procGet, procPool, procHold:
		n := int(d.Uint32())
		p.Results = append(p.Results, Result{Max: n})
		p.MaxReply += xdr.Round(n)
	case procEcho:
		p.MaxReply += xdr.Round(int(d.Uint32()))
	}
	return args, d.Err()
}

func (bulkBinding) Results(found []Found, p *Plan, placed []int, procedure uint32, d *xdr.Decoder) ([]Found, error) {
	if procedure != procGet && procedure != procPool {
		return append(found, Found{}), nil
	}
	n := int(d.Uint32())
	f := Found{State: Inline, Position: d.Pos(), Length: n}
	d.Skip(n)
	return append(found, f), d.Err()
}

func BenchmarkNull(b *testing.B) {
	s := startServer(b, Config{})
	c, pool := dial(b, s.addr, Config{})
	b.Run("depth=1", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			r, _, err := NewRequest(pool, testProgram, 1, procNull, Auth{}, MinCallLen)
			if err != nil {
				b.Fatal(err)
			}
			if err := Do(context.Background(), c, r); err != nil {
				b.Fatal(err)
			}
			r.Free()
		}
	})
	b.Run("depth=16", func(b *testing.B) {
		b.ReportAllocs()
		d := newDriver(b, c, pool)
		before := s.Stats()
		b.ResetTimer()
		d.run(b.N)
		after := s.Stats()
		b.ReportMetric(float64(after.ReadCalls+after.WriteCalls-before.ReadCalls-before.WriteCalls)/float64(b.N), "syscalls/op")
	})
}

func BenchmarkRead(b *testing.B) {
	s := startServer(b, Config{})
	c, pool := dial(b, s.addr, Config{Bindings: bulkBindings})
	const n = 1 << 20
	b.SetBytes(n)
	b.ReportAllocs()
	var wg sync.WaitGroup
	calls := make(chan struct{}, 16)
	for range 16 {
		wg.Go(func() {
			for range calls {
				r, e, err := NewRequest(pool, testProgram, 1, procPool, Auth{}, 100)
				if err != nil {
					b.Error(err)
					return
				}
				e.Uint32(n)
				r.Plan.Results = append(r.Plan.Results, Result{Max: n})
				if err := Do(context.Background(), c, r); err != nil {
					b.Error(err)
				}
				r.Free()
			}
		})
	}
	for b.Loop() {
		calls <- struct{}{}
	}
	close(calls)
	wg.Wait()
}

func BenchmarkWrite(b *testing.B) {
	s := startServer(b, Config{Budget: bufpool.NewBudget(0, 0)})
	c, pool := dial(b, s.addr, Config{})
	for _, n := range []int{32 << 10, 128 << 10, 1 << 20} {
		b.Run(fmt.Sprint(n>>10, "K"), func(b *testing.B) {
			data := [][]byte{fill(n, 1)}
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				r, e, err := NewRequest(pool, testProgram, 1, procSum, Auth{}, 100)
				if err != nil {
					b.Fatal(err)
				}
				e.Bulk(data, n)
				if err := Do(context.Background(), c, r); err != nil {
					b.Fatal(err)
				}
				r.Free()
			}
		})
	}
}

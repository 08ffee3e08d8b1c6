package rpcrdma

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"sluice.dev/sluice/pkg/rdma/rdmatest"
)

var shapes = []struct {
	name string
	m    move
}{
	{"inline both ways", move{args: []int{10}, results: []int{11}}},
	{"read chunk", move{args: []int{10000}, results: []int{3}}},
	{"read chunk of several segments", move{args: []int{10001}, split: 5}},
	{"read chunk cut out of the stream", move{args: []int{10003}, inline: true}},
	{"two read chunks", move{args: []int{10001, 20002}}},
	{"three read chunks and write chunks", move{args: []int{5001, 5002, 5003}, results: []int{5001, 5002, 5003}}},
	{"write chunk", move{results: []int{100001}}},
	{"write chunk into memory of the caller", move{results: []int{100001}, memory: 1}},
	{"write chunk of several segments", move{results: []int{100001}, memory: 7}},
	{"write chunk larger than a buffer", move{results: []int{5 << 20}}},
	{"several write chunks", move{results: []int{5000, 6001, 7002}}},
	{"unused write chunks", move{results: []int{5000, 6001, 7002, 100}, how: []int{1, 0, 1, 0}}},
	{"results inline in the handler's stream", move{results: []int{5000, 6001}, how: []int{2, 2}}},
	{"both", move{args: []int{65536}, results: []int{65536}}},
	{"3 MiB", move{args: []int{3<<20 + 1}, results: []int{3<<20 + 3}}},
}

func testShapes(w *env, c *Client) {
	if err := null(c, w.cpool, procNull); err != nil {
		w.t.Error(err)
	}
	for _, s := range shapes {
		if err := s.m.do(c, w.cpool); err != nil {
			w.t.Errorf("%s: %v", s.name, err)
		}
	}
	for _, n := range [][2]int{{10, 10}, {10000, 10}, {10, 10000}, {100000, 200001}} {
		if err := plain(c, w.cpool, n[0], n[1]); err != nil {
			w.t.Errorf("plain %v: %v", n, err)
		}
	}
}

func TestShapes(t *testing.T) {
	for _, async := range []bool{false, true} {
		for _, inv := range []bool{false, true} {
			t.Run(fmt.Sprintf("async=%v,invalidate=%v", async, inv), func(t *testing.T) {
				w := newEnv(t, rdmatest.Options{ScribbleReceives: true}, nil)
				w.handler.async = async
				c := w.dial(func(cfg *Config) { cfg.RemoteInvalidation = inv })
				testShapes(w, c)
				w.close(c)
			})
		}
	}
}

// TestNear: on a near link results come by RDMA Writes, and arguments beyond NearArguments go by
// RDMA Reads. On others, and without the setting, all of them are in receives.
func TestNear(t *testing.T) {
	for _, x := range []struct {
		delay, near time.Duration
		isNear      bool
	}{
		{10 * time.Microsecond, 50 * time.Microsecond, true},
		{25 * time.Microsecond, 50 * time.Microsecond, true},
		{26 * time.Microsecond, 50 * time.Microsecond, false},
		{10 * time.Microsecond, 0, false},
		{0, 50 * time.Microsecond, false}, // unknown
	} {
		t.Run(fmt.Sprintf("%v of %v", 2*x.delay, x.near), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newEnv(t, rdmatest.Options{Delay: x.delay}, extended(allExtensions))
				c := w.dial(func(cfg *Config) {
					extended(allExtensions)(cfg)
					cfg.Placement.Near = x.near
				})
				if err := null(c, w.cpool, procNull); err != nil { // the first call has no group
					t.Fatal(err)
				}
				out := &c.conn.requester
				for _, call := range []struct {
					m             move
					counted       int64 // bytes of other calls
					reads, writes uint64
				}{
					{m: move{results: []int{4096}}, writes: 1},
					{m: move{results: []int{4095}}},
					{m: move{results: []int{100_000}}, writes: 1},
					{m: move{args: []int{4096}}},
					{m: move{args: []int{NearArguments}}},
					{m: move{args: []int{NearArguments + 4}}, reads: 1},
					{m: move{args: []int{5000}}, counted: NearArguments - 5000},
					{m: move{args: []int{5004}}, counted: NearArguments - 5000, reads: 1},
					{m: move{args: []int{100}}, counted: NearArguments},
				} {
					out.placedBytes.Store(call.counted)
					before := c.Stats()
					if err := call.m.do(c, w.cpool); err != nil {
						t.Fatal(err)
					}
					s := c.Stats()
					reads, writes := s.RemoteReads-before.RemoteReads, s.RemoteWrites-before.RemoteWrites
					if !x.isNear {
						call.reads, call.writes = 0, 0
					}
					if reads != call.reads || writes != call.writes {
						t.Errorf("%+v: %d RDMA Reads and %d Writes, want %d and %d", call.m, reads, writes, call.reads, call.writes)
					}
					if n := out.placedBytes.Load(); n != call.counted {
						t.Errorf("%+v: %d bytes are counted afterwards, %d before", call.m, n, call.counted)
					}
				}
				w.close(c)
			})
		})
	}
}

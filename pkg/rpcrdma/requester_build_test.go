package rpcrdma

import (
	"fmt"
	"testing"

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

func testShapes(w *world, c *Client) {
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
				w := newWorld(t, rdmatest.Options{ScribbleReceives: true}, nil)
				w.handler.async = async
				c := w.dial(func(cfg *Config) { cfg.RemoteInvalidation = inv })
				testShapes(w, c)
				w.close(c)
			})
		}
	}
}

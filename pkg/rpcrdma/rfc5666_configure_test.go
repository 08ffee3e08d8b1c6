package rpcrdma

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/rdma/rdmatest"
)

// TestConfigure checks a client's first call, and its values after each kind of answer.
func TestConfigure(t *testing.T) {
	accepted := func(words ...any) []any { return append([]any{0, 0, 0, 0, 0, 1, 0, 0, 0, 0}, words...) }
	for name, tt := range map[string]struct {
		bare        bool  // the server sends no private data
		answer      []any // after XID, version and credits; XIDs of the reply are filled in
		call, reply int
		padding     int
		configured  bool
		noReads     bool
	}{
		"larger":         {answer: accepted(8192, 1024, 16), call: 8192, reply: 4096, padding: 1024, configured: true},
		"far larger":     {answer: accepted(1<<31, 0, 16), call: 16384, reply: 4096, configured: true},
		"smaller":        {answer: accepted(1000, 64, 16), call: 4096, reply: 4096, padding: 64, configured: true},
		"bare":           {bare: true, answer: accepted(6144, 256, 1), call: 6144, reply: 16384, padding: 256, configured: true},
		"no Reads":       {answer: accepted(4096, 0, 0), call: 4096, reply: 4096, configured: true, noReads: true},
		"odd alignment":  {answer: accepted(4096, 96, 16), call: 4096, reply: 4096, configured: true},
		"long alignment": {answer: accepted(4096, 1<<31, 16), call: 4096, reply: 4096, configured: true},
		"short answer":   {answer: accepted(8192, 512), call: 4096, reply: 4096},
		"PROG_UNAVAIL":   {answer: []any{0, 0, 0, 0, 0, 1, 0, 0, 0, 1}, call: 4096, reply: 4096},
		"refused":        {answer: []any{0, 0, 0, 0, 0, 1, 1, 1, 1}, call: 4096, reply: 4096},
		"ERR_CHUNK":      {answer: []any{4, 2}, call: 4096, reply: 4096},
	} {
		t.Run(name, func(t *testing.T) {
			f := rdmatest.NewFabric(rdmatest.Options{})
			w := newEnvOn(t, f, nil)
			private := rawPrivate(4096)
			if tt.bare {
				private = nil
			}
			address, accept := rawServer(t, f, private)
			got, failed := make(chan *rawPeer, 1), make(chan error, 1)
			go func() {
				p := accept()
				h, call := p.parse(p.get().b)
				want := words(uint32(h.XID), 0, 2, 100417, 1, 1, 0, 0, 0, 0, 16384, 16384, 16)
				var err error
				if !bytes.Equal(call, want) || h.Chunks() {
					err = fmt.Errorf("the first call is %x, must be %x", call, want)
				}
				b := words(append([]any{uint32(h.XID), 1, 8}, tt.answer...)...)
				if tt.answer[0] == 0 {
					copy(b[28:], words(uint32(h.XID)))
				}
				p.send(b)
				failed <- err
				got <- p
			}()
			cfg := w.clientConfig()
			cfg.RFC5666, cfg.InlineCall, cfg.InlineReply = Configuration|Padding, 16384, 16384
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			c, err := Dial(ctx, f, address, cfg)
			if err != nil {
				t.Fatal(err)
			}
			p := <-got
			if err := <-failed; err != nil {
				t.Error(err)
			}
			n := c.Negotiated()
			if n.InlineCall != tt.call || n.InlineReply != tt.reply || n.Padding != tt.padding || n.Configured != tt.configured {
				t.Errorf("%+v", n)
			}
			if tt.noReads {
				m := move{args: []int{70_000}}
				if err := m.do(c, w.cpool); err == nil || !strings.Contains(err.Error(), "takes no Read chunk") {
					t.Error(err)
				}
			}
			p.close()
			w.close(c)
		})
	}
}

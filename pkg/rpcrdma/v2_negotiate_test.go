package rpcrdma

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rdma/iwarp"
	"sluice.dev/sluice/pkg/rdma/rdmatest"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// version2 changes a Config to version 2 alone, with transport properties.
func version2(cfg *Config) {
	cfg.Versions, cfg.Extensions = []int{2}, TransportProperties
}

// TestVersions connects every kind of client to every kind of server.
func TestVersions(t *testing.T) {
	offers := [][]int{nil, {1}, {2}, {1, 2}}
	for _, server := range offers {
		for _, client := range offers {
			for ext := range 4 {
				t.Run(fmt.Sprintf("server%v,client%v,ext%d", server, client, ext), func(t *testing.T) {
					w := newEnv(t, rdmatest.Options{ScribbleReceives: true}, func(cfg *Config) {
						cfg.Versions, cfg.Extensions = server, Extensions(ext&1)
					})
					cfg := w.clientConfig()
					cfg.Versions, cfg.Extensions = client, Extensions(ext>>1)
					has := func(list []int, v int) bool { return slices.Contains(list, v) || v == 1 && list == nil }
					want := 0
					for v := 1; v <= 2; v++ {
						if has(server, v) && has(client, v) {
							want = v
						}
					}
					c, err := Dial(context.Background(), w.p, w.address, cfg)
					if want == 0 && has(client, 2) {
						var remote *RemoteError
						if !errors.As(err, &remote) || remote.Code != wire.ErrVers || remote.Low != 1 || remote.High != 1 {
							t.Fatalf("Dial: %v", err)
						}
						w.close()
						return
					}
					if err != nil {
						t.Fatal(err)
					}
					if want == 0 { // a client of version 1 learns it from its first call
						err := null(c, w.cpool, procNull)
						var remote *RemoteError
						if !errors.As(err, &remote) || remote.Code != wire.ErrVers || remote.Low != 2 || remote.High != 2 {
							t.Errorf("call: %v", err)
						}
						w.close(c)
						return
					}
					for range 3 {
						if err := null(c, w.cpool, procNull); err != nil {
							t.Error(err)
						}
						m := move{args: []int{10000}, results: []int{10000}}
						if err := m.do(c, w.cpool); err != nil {
							t.Error(err)
						}
					}
					n := c.Negotiated()
					if n.Version != want || n.Granted != 128 {
						t.Errorf("client: %+v, want version %d", n, want)
					}
					w.server.mu.Lock()
					for s := range w.server.conns {
						if n := s.Negotiated(); n.Version != want {
							t.Errorf("server: %+v, want version %d", n, want)
						}
					}
					w.server.mu.Unlock()
					w.waitIdle()
					if n := c.conn.protocolErrors.Load(); want == 2 && (n > 0 || w.counts.all() > 0) {
						t.Errorf("%d protocol errors at the client, %d at the server: to have no properties is none", n, w.counts.all())
					}
					w.close(c)
				})
			}
		}
	}
}

// TestVersion2 runs all shapes in version 2.
func TestVersion2(t *testing.T) {
	for _, async := range []bool{false, true} {
		for _, inv := range []bool{false, true} {
			t.Run(fmt.Sprintf("async=%v,invalidate=%v", async, inv), func(t *testing.T) {
				w := newEnv(t, rdmatest.Options{ScribbleReceives: true}, version2)
				w.handler.async = async
				c := w.dial(func(cfg *Config) {
					version2(cfg)
					cfg.RemoteInvalidation = inv
				})
				testShapes(w, c)
				w.waitIdle()
				w.close(c)
			})
		}
	}
}

// TestVersion2Sizes announces receive sizes other than the default.
func TestVersion2Sizes(t *testing.T) {
	for _, s := range []struct{ serverIn, serverOut, clientOut, clientIn, call, reply int }{
		{4096, 4096, 4096, 4096, 4096, 4096},
		{1024, 1024, 1024, 1024, 1024, 1024},
		{16384, 8192, 32768, 32768, 16384, 8192},
		{16384, 65536, 4096, 8192, 4096, 8192},
	} {
		t.Run(fmt.Sprint(s), func(t *testing.T) {
			w := newEnv(t, rdmatest.Options{ScribbleReceives: true}, func(cfg *Config) {
				version2(cfg)
				cfg.InlineCall, cfg.InlineReply = s.serverIn, s.serverOut
			})
			c := w.dial(func(cfg *Config) {
				version2(cfg)
				cfg.InlineCall, cfg.InlineReply = s.clientOut, s.clientIn
			})
			testShapes(w, c)
			n := c.Negotiated()
			if n.InlineCall != s.call || n.InlineReply != s.reply {
				t.Errorf("%+v", n)
			}
			if want := (Properties{ReceiveSize: max(4096, s.serverIn), Backward: wire.BackwardInline, RequestLimit: 1, ResponseLimit: 1}); n.Remote != want {
				t.Errorf("server's properties %+v, want %+v", n.Remote, want)
			}
			if want := (Properties{ReceiveSize: max(4096, s.clientIn), Backward: wire.BackwardNone, RequestLimit: 1, ResponseLimit: 1}); n.Own != want {
				t.Errorf("client's properties %+v, want %+v", n.Own, want)
			}
			w.close(c)
		})
	}
}

// TestVersion2IWARP runs all shapes of version 2, and the fall back to version 1, over software
// iWARP.
func TestVersion2IWARP(t *testing.T) {
	for _, server := range [][]int{{1}, {1, 2}, {2}} {
		p, err := iwarp.New(iwarp.Config{})
		if err != nil {
			t.Fatal(err)
		}
		w := newEnvOn(t, p, func(cfg *Config) { cfg.Versions, cfg.Extensions = server, TransportProperties })
		c := w.dial(func(cfg *Config) { cfg.Versions, cfg.Extensions = []int{1, 2}, TransportProperties })
		testShapes(w, c)
		if v, want := c.Negotiated().Version, server[len(server)-1]; v != want {
			t.Errorf("version %d, want %d", v, want)
		}
		w.close(c)
	}
}

// deafServer accepts connections and treats each as given: do nothing, or disconnect at the first
// message; it serves the last one.
func deafServer(t *testing.T, f *rdmatest.Fabric, first func(*rawPeer)) (address string, peers chan *rawPeer) {
	t.Helper()
	l, err := f.Listen(context.Background(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	peers = make(chan *rawPeer, 8)
	go func() {
		for n := 0; ; n++ {
			in, err := l.Accept()
			if err != nil {
				close(peers)
				return
			}
			p := newRawPeer(t, 8192)
			d, err := f.NewDomain()
			if err == nil {
				err = d.Register(p.pool)
			}
			if err == nil {
				p.ep, err = in.Accept(p.options(d, rawPrivate(4096)))
			}
			if err != nil {
				t.Error(err)
				return
			}
			p.serve()
			if n == 0 {
				first(p)
			}
			peers <- p
		}
	}()
	t.Cleanup(func() { l.Close() })
	return l.Addr().String(), peers
}

// TestVersionLost dials servers that do not bear version 2: the client connects anew with version
// 1, and knows it the next time.
func TestVersionLost(t *testing.T) {
	for _, c := range []struct {
		name  string
		first func(*rawPeer)
	}{
		{"disconnects", func(p *rawPeer) { <-p.in; p.ep.Close() }},
		{"is silent", func(p *rawPeer) { <-p.in }},
	} {
		for _, versions := range [][]int{{1, 2}, {2}} {
			t.Run(fmt.Sprintf("%s,%v", c.name, versions), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := rdmatest.NewFabric(rdmatest.Options{})
					address, peers := deafServer(t, f, c.first)
					pool := getPool()
					cfg := Config{Pool: pool, Versions: versions, Extensions: TransportProperties}
					cl, err := Dial(context.Background(), f, address, cfg)
					p := <-peers
					_ = p.end()
					p.close()
					if len(versions) == 1 {
						if err == nil {
							t.Fatal("connected")
						}
						return
					}
					if err != nil {
						t.Fatal(err)
					}
					if v := cl.Negotiated().Version; v != 1 {
						t.Errorf("version %d", v)
					}
					second, err := Dial(context.Background(), f, address, cfg)
					if err != nil {
						t.Fatal(err)
					}
					for _, c := range []*Client{cl, second} {
						p := <-peers
						p.none()
						c.Close()
						<-c.Done()
						p.close()
					}
					putPool(pool)
				})
			})
		}
	}
}

// TestVersionAgain dials a server that was restarted just when version 2 was tried. It is taken for
// an old one for a few seconds, and asked again then.
func TestVersionAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := rdmatest.NewFabric(rdmatest.Options{})
		address, peers := deafServer(t, f, func(p *rawPeer) { <-p.in; p.ep.Close() })
		pool := getPool()
		dial := func(want int) {
			t.Helper()
			answered := make(chan *rawPeer, 1)
			go func() {
				p := <-peers
				if want == 2 {
					p.send(words(uint32(p.parse2(p.get().b).XID), 2, 5, 6, 0, 0))
				}
				answered <- p
			}()
			cl, err := Dial(context.Background(), f, address, Config{Pool: pool, Versions: []int{1, 2}, Extensions: TransportProperties})
			if err != nil {
				t.Fatal(err)
			}
			if v := cl.Negotiated().Version; v != want {
				t.Errorf("version %d, want %d", v, want)
			}
			p := <-answered
			cl.Close()
			<-cl.Done()
			p.close()
		}
		go func() {
			p := <-peers // the server that was restarted
			_ = p.end()
			p.close()
		}()
		synctest.Wait()
		dial(1)
		time.Sleep(firstV1OnlyWait - time.Millisecond)
		dial(1)
		time.Sleep(time.Millisecond)
		dial(2)
		dial(2)
		putPool(pool)
	})
}

// TestOldPeers counts how long servers are dialed with version 1 that bear version 2 never, or
// again.
func TestOldPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o v1OnlyServers
		var p rdma.Provider = rdmatest.NewFabric(rdmatest.Options{})
		lasts := func() (d time.Duration) {
			for ; o.has(p, "a"); d += 5 * time.Second {
				time.Sleep(5 * time.Second)
			}
			return d
		}
		for _, want := range []time.Duration{5, 10, 20, 40, 80, 160, 320, 600, 600} {
			o.add(p, "a")
			o.add(p, "a") // by another dial at the same time
			if got := lasts(); got != want*time.Second {
				t.Errorf("version 2 is not tried for %v, want %d s", got, want)
			}
		}
		o.remove(p, "a")
		o.add(p, "a")
		if got := lasts(); got != firstV1OnlyWait {
			t.Errorf("after it has answered: %v, want %v", got, firstV1OnlyWait)
		}
	})
}

// TestVersionContext gives up when the context ends.
func TestVersionContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := rdmatest.NewFabric(rdmatest.Options{})
		address, peers := deafServer(t, f, func(*rawPeer) {})
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		pool := getPool()
		_, err := Dial(ctx, f, address, Config{Pool: pool, Versions: []int{1, 2}})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Dial: %v", err)
		}
		p := <-peers
		_ = p.end()
		p.close()
		putPool(pool)
	})
}

// dial2 connects the requester, with version 2, to a raw server that answers the first message with
// answer's bytes.
func dial2(t *testing.T, change func(*Config), answer func(h *wire.Header) []byte) (*Client, *rawPeer, *env, error) {
	t.Helper()
	f := rdmatest.NewFabric(rdmatest.Options{ScribbleReceives: true, Record: true})
	w := newEnvOn(t, f, nil)
	w.fabric = f
	address, accept := rawServer(t, f, rawPrivate(8192))
	got := make(chan *rawPeer, 1)
	go func() {
		p := accept()
		p.send(answer(p.parse2(p.get().b)))
		got <- p
	}()
	cfg := w.clientConfig()
	cfg.Versions, cfg.Extensions = []int{1, 2}, TransportProperties
	if change != nil {
		change(&cfg)
	}
	c, err := Dial(context.Background(), f, address, cfg)
	return c, <-got, w, err
}

// parse2 reads a header of version 2, or 1.
func (p *rawPeer) parse2(b []byte) *wire.Header {
	p.t.Helper()
	h := new(wire.Header)
	lim := wire.Limits{ReadSegments: 256, WriteChunks: 256, SegmentsPerChunk: 256, WriteSegments: 1024, Items: 64, Buffers: 64, Version2: true}
	if err := h.Parse([][]byte{b}, &lim); err != nil {
		p.t.Errorf("%x: %v", b, err)
	}
	return h
}

// TestFirstAnswer gives a client every kind of answer to its first message.
func TestFirstAnswer(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(*Config)
		answer  func(h *wire.Header) []byte
		version int // 0: none
		granted int
	}{
		{"properties", nil, func(h *wire.Header) []byte {
			return words(uint32(h.XID), 2, 5, 6, 2, 1, 4, 8192, 0x7777, 4, 1, 0)
		}, 2, 5},
		{"properties with another XID", nil, func(h *wire.Header) []byte {
			return words(77, 2, 5, 6, 0, 0)
		}, 2, 5},
		{"INVALID_OPTION", nil, func(h *wire.Header) []byte { return words(uint32(h.XID), 2, 5, 4, 3) }, 2, 1},
		{"INVALID_OPTION of draft -05", nil, func(h *wire.Header) []byte { return words(uint32(h.XID), 2, 5, 4, 9) }, 2, 1},
		{"ERR_VERS", nil, func(h *wire.Header) []byte { return words(uint32(h.XID), 2, 5, 4, 1, 1, 1) }, 1, 1},
		{"ERR_VERS in version 1", nil, func(h *wire.Header) []byte { return words(uint32(h.XID), 1, 5, 4, 1, 1, 1) }, 1, 1},
		{"ERR_VERS, version 3", nil, func(h *wire.Header) []byte { return words(uint32(h.XID), 2, 5, 4, 1, 3, 3) }, 0, 0},
		{"ERR_VERS to a client of version 2 alone", version2, func(h *wire.Header) []byte { return words(uint32(h.XID), 2, 5, 4, 1, 1, 1) }, 0, 0},
		{"BAD_XDR", nil, func(h *wire.Header) []byte { return words(uint32(h.XID), 2, 5, 4, 2) }, 0, 0},
		{"a reply", func(cfg *Config) { cfg.Extensions = 0 }, func(h *wire.Header) []byte {
			return words(uint32(h.XID), 2, 5, 0, 1, 0, 0, 0, 0, uint32(h.XID), 1, 0, 0, 0, 1)
		}, 2, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			var seen counts
			cl, p, w, err := dial2(t, func(cfg *Config) {
				cfg.Observer = &seen
				if c.change != nil {
					c.change(cfg)
				}
			}, c.answer)
			if older := strings.HasPrefix(c.name, "ERR_VERS") && c.version == 1; older && seen.faults(ErrorReceived) != 0 {
				t.Error("that the peer is of version 1 is counted as an error")
			}
			if c.version == 0 {
				var remote *RemoteError
				if !errors.As(err, &remote) {
					t.Errorf("Dial: %v", err)
				}
				p.close()
				w.close()
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			n := cl.Negotiated()
			if n.Version != c.version || cl.conn.requester.granted != c.granted {
				t.Errorf("%+v, %d granted", n, cl.conn.requester.granted)
			}
			done := make(chan error, 1)
			go func() { done <- null(cl, w.cpool, procNull) }()
			h := p.parse2(p.get().b)
			if int(h.Version) != c.version || h.Procedure != wire.Msg {
				t.Errorf("call is version %d, %v", h.Version, h.Procedure)
			}
			if c.version == 2 {
				p.send(words(uint32(h.XID), 2, 9, 0, 1, 0, 0, 0, 0, uint32(h.XID), 1, 0, 0, 0, 0))
			} else {
				p.send(words(uint32(h.XID), 1, 9, 0, 0, 0, 0, uint32(h.XID), 1, 0, 0, 0, 0))
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
			p.close()
			w.close(cl)
		})
	}
}

// TestFirstMessage looks at the first message of both kinds of clients: it is small enough for any
// receiver.
func TestFirstMessage(t *testing.T) {
	for _, ext := range []Extensions{0, TransportProperties} {
		var size int
		cl, p, w, err := dial2(t, func(cfg *Config) { cfg.Extensions = ext; cfg.Credits = credit.Static(7) }, func(h *wire.Header) []byte {
			size = h.Size
			want := wire.ConnProp
			if ext == 0 {
				want = wire.Msg
			}
			if h.Version != 2 || h.Procedure != want || h.Credits != 7 {
				t.Errorf("first message: %+v", h)
			}
			return words(uint32(h.XID), 2, 5, 4, 3)
		})
		if size > wire.FirstMessage {
			t.Errorf("%d bytes", size)
		}
		if ext == 0 { // INVALID_OPTION is nothing that MSG is answered with
			if err != nil {
				t.Errorf("Dial: %v", err)
			}
		}
		p.close()
		w.close(cl)
	}
}

// TestRemembered bounds the servers that are remembered.
func TestRemembered(t *testing.T) {
	var o v1OnlyServers
	var p rdma.Provider = rdmatest.NewFabric(rdmatest.Options{})
	for i := range 2 * maxV1OnlyServers {
		o.add(p, fmt.Sprint(i))
	}
	if len(o.list) != maxV1OnlyServers || o.has(p, "0") || !o.has(p, fmt.Sprint(2*maxV1OnlyServers-1)) {
		t.Errorf("%d remembered", len(o.list))
	}
}

// TestSameXID has a client send an invalid message with the XID of an outstanding reverse call. If
// it is no reply, it is answered and leaves the reverse call alone; if it may be the reply, it ends
// the call.
func TestSameXID(t *testing.T) {
	w := newEnv(t, rdmatest.Options{}, version2)
	p := w.rawDial(rawPrivate(4096))
	p.send(words(1, 2, 8, 0, 0, 0, 0, 0, 0, rpcCall(1, procNull)))
	p.get()
	for _, c := range []struct {
		name  string
		rest  []byte // from the procedure on
		code  wire.ErrorCode
		reply bool
	}{
		{"MSG with a bad position", words(0, 0, 0, 1, 2, someSegment, 0, 0, 0), wire.BadXDR, false},
		{"NOMSG cut", words(1, 0, 0), wire.BadXDR, false},
		{"an unknown operation", words(5, 0, 99, 0), wire.InvalidOption, false},
		{"properties cut", words(7, 1), wire.BadXDR, false},
		{"a reply with a bad position", words(0, 1, 0, 1, 2, someSegment, 0, 0, 0), 0, true},
		{"neither call nor reply", words(0, 2, 0, 0, 0, 0), 0, true},
		{"an unknown error", words(4, 77), 0, true},
		{"an unknown procedure", words(3, 0), 0, true},
	} {
		ended := make(chan error, 1)
		go func() { ended <- null(w.back(), w.pool, procNull) }()
		xid := uint32(p.parse2(p.get().b).XID)
		p.send(words(xid, 2, 8, c.rest))
		if !c.reply {
			if h := p.parse2(p.get().b); uint32(h.XID) != xid || h.Procedure != wire.Error || h.Code != c.code {
				t.Errorf("%s: answered %+v, want %s", c.name, h, c.code.Name(wire.Version2))
			}
			p.send(words(xid, 2, 8, 0, 1, 0, 0, 0, 0, xid, 1, 0, 0, 0, 0))
		}
		var bad *ReplyError
		if err := <-ended; c.reply != errors.As(err, &bad) || !c.reply && err != nil {
			t.Errorf("%s: the reverse call ends with %v", c.name, err)
		}
	}
	p.none()
	// it uses up the receive of the last reverse call
	p.send(words(2, 2, 8, 0, 0, 0, 0, 0, 0, rpcCall(2, procNull)))
	p.get()
	w.waitIdle()
	p.close()
	w.close()
}

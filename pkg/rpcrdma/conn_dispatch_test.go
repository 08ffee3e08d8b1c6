package rpcrdma

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rdma/rdmatest"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// verdict is how a message is to be answered.
type verdict uint8

const (
	silence verdict = iota
	errVers
	errChunk
	garbage  // an RPC reply GARBAGE_ARGS
	mismatch // an RPC reply RPC_MISMATCH
	badCred  // an RPC reply AUTH_ERROR
	success
)

// badHeader is a message of which bytes at the end of the header may be missing.
var someSegment = wire.Segment{Handle: 0x1234, Length: 100, Offset: 0x5678}

type badCase struct {
	name string
	msg  []byte
	want verdict
	what ErrorKind
}

const badXID = 0x77665544

func head(vers, proc int, rest ...any) []byte {
	return append(words(badXID, vers, 32, proc), words(rest...)...)
}

// segs are n segments of a Write or Reply chunk, with their count.
func chunkOf(n int, s wire.Segment) []byte {
	b := words(n)
	for range n {
		b = append(b, words(s)...)
	}
	return b
}

func readsOf(n, position int, s wire.Segment) (b []byte) {
	for range n {
		b = append(b, words(1, position, s)...)
	}
	return b
}

func badCases() []badCase {
	null := rpcCall(badXID, procNull)
	move := rpcCall(badXID, procMove, moveArgs([]int{100}))
	at := 40 + 8 // the position of the first argument
	seg := someSegment
	long := seg
	long.Length = 1 << 21
	huge := seg
	huge.Length = 0xffffffff
	over := seg
	over.Offset = 0xffffffff_ffffffff - 98
	cases := []badCase{
		{"empty", nil, silence, ShortMessage},
		{"19 bytes", head(1, 0, 0)[:19], silence, ShortMessage},
		{"20 bytes", head(1, 0, 0), silence, ShortMessage},
		{"27 bytes", head(1, 0, 0, 0, 0)[:27], silence, ShortMessage},
		{"version 0", head(0, 0, 0, 0, 0, null), errVers, BadVersion},
		{"version 2", head(2, 0, 0, 0, 0, null), errVers, BadVersion},
		{"version 2, procedure 7", head(2, 7, 0, 0, 0, null), errVers, BadVersion},
		{"version 2, RDMA_ERROR", head(2, 4, 2, 0, 0), silence, Dropped},
		{"RDMA_MSGP", head(1, 2, 0, 0, 0, 0, 0, null), errChunk, BadHeader},
		{"RDMA_DONE", head(1, 3, 0, 0, 0), silence, Dropped},
		{"RDMA_ERROR, ERR_CHUNK", head(1, 4, 2), silence, Dropped},
		{"RDMA_ERROR, ERR_VERS", head(1, 4, 1, 1, 1), silence, Dropped},
		{"RDMA_ERROR, ERR_VERS cut", head(1, 4, 1, 1), silence, BadHeader},
		{"RDMA_ERROR of no kind", head(1, 4, 3, 0, 0), silence, BadHeader},
		{"procedure 5", head(1, 5, 0, 0, 0, null), errChunk, BadHeader},
		{"procedure 2^32-1", head(1, -1, 0, 0, 0, null), errChunk, BadHeader},
		{"Read list goes on with 2", head(1, 0, 2, 0, 0, null), errChunk, BadHeader},
		{"Write list goes on with 2", head(1, 0, 0, 2, 0, null), errChunk, BadHeader},
		{"Reply chunk is there by 2", head(1, 0, 0, 0, 2, null), errChunk, BadHeader},
		{"Write chunk of 2^32-1 segments", head(1, 0, 0, 1, -1, 0, 0, null), errChunk, BadHeader},
		{"Reply chunk of 2^31 segments", head(1, 0, 0, 0, 1, -1<<31, null), errChunk, BadHeader},
		{"Write chunk longer than the message", head(1, 0, 0, 1, 16, seg), errChunk, BadHeader},
		{"too many segments in a Write chunk", head(1, 0, 0, 1, chunkOf(33, seg), 0, 0, null), errChunk, BadHeader},
		{"too many segments in a Reply chunk", head(1, 0, 0, 0, 1, chunkOf(33, seg), null), errChunk, BadHeader},
		{"too many segments in a Read chunk", head(1, 0, readsOf(33, at, seg), 0, 0, 0, move), errChunk, BadHeader},
		{"too many segments in the Read list", head(1, 0, readsOf(32, at, seg), readsOf(32, at+4096, seg), readsOf(1, at+8192, seg), 0, 0, 0, move), errChunk, BadHeader},
		{"too many segments to write", head(1, 0, 0, 1, chunkOf(32, seg), 1, chunkOf(32, seg), 1, chunkOf(1, seg), 0, 0, null), errChunk, BadHeader},
		{"too many Write chunks", head(1, 0, 0, bytes.Repeat(words(1, 0), 17), 0, 0, null), errChunk, BadHeader},
		{"Read segment ends beyond 2^64", head(1, 0, 1, at, over, 0, 0, 0, move), errChunk, BadHeader},
		{"Write segment ends beyond 2^64", head(1, 0, 0, 1, 1, over, 0, 0, null), errChunk, BadHeader},
		{"position no multiple of 4", head(1, 0, 1, at+1, seg, 0, 0, 0, move), errChunk, BadHeader},
		{"a position comes again", head(1, 0, 1, at, seg, 1, at+400, seg, 1, at, seg, 0, 0, 0, move), errChunk, BadHeader},
		{"positions unsorted, one comes again", head(1, 0, 1, at+400, seg, 1, at, seg, 1, at+400, seg, 0, 0, 0, move), errChunk, BadHeader},
		{"positions unsorted, and none is an argument", head(1, 0, 1, at+400, seg, 1, at, seg, 0, 0, 0, move), errChunk, BadChunk},
		{"positions unsorted, and overlap", head(1, 0, 1, at+96, seg, 1, at, seg, 0, 0, 0, move), errChunk, BadChunk},
		{"RDMA_NOMSG without chunks", head(1, 1, 0, 0, 0), errChunk, BadChunk},
		{"RDMA_NOMSG with a Write chunk", head(1, 1, 0, 1, 1, seg, 0, 0), errChunk, BadChunk},
		{"RDMA_NOMSG with a Reply chunk", head(1, 1, 0, 0, 1, 1, seg), errChunk, BadChunk},
		{"RDMA_NOMSG with a data chunk only", head(1, 1, 1, at, seg, 0, 0, 0), errChunk, BadChunk},
		{"RDMA_NOMSG with a tiny chunk", head(1, 1, 1, 0, wire.Segment{Length: 36}, 0, 0, 0), errChunk, BadChunk},
		{"RDMA_MSG with a Position Zero Read chunk", head(1, 0, 1, 0, seg, 0, 0, 0, null), errChunk, BadChunk},
		{"no payload", head(1, 0, 0, 0, 0), errChunk, BadChunk},
		{"payload of 7 bytes", head(1, 0, 0, 0, 0, null[:7]), errChunk, BadChunk},
		{"payload of 39 bytes", head(1, 0, 0, 0, 0, null[:39]), errChunk, BadChunk},
		{"other XID in the payload", head(1, 0, 0, 0, 0, rpcCall(badXID+1, procNull)), errChunk, BadHeader},
		{"neither call nor reply", head(1, 0, 0, 0, 0, words(badXID, 2), null[8:]), errChunk, BadHeader},
		{"reply to no call", head(1, 0, 0, 0, 0, words(badXID, 1, 0, 0, 0, 0)), silence, UnknownXID},
		{"RPC version 3", head(1, 0, 0, 0, 0, words(badXID, 0, 3), null[12:]), mismatch, BadArguments},
		{"credential of 404 bytes", head(1, 0, 0, 0, 0, null[:24], words(1, 404), make([]byte, 412)), badCred, BadArguments},
		{"credential cut", head(1, 0, 0, 0, 0, null[:24], words(1, 100, 0, 0)), errChunk, BadHeader},
		{"position beyond the payload", head(1, 0, 1, 40+24, seg, 0, 0, 0, move), errChunk, BadChunk},
		{"position far beyond the payload", head(1, 0, 1, 0x7ffffffc, seg, 0, 0, 0, move), errChunk, BadChunk},
		{"position 2^32-4", head(1, 0, 1, -4, seg, 0, 0, 0, move), errChunk, BadChunk},
		{"position in the RPC header", head(1, 0, 1, 8, seg, 0, 0, 0, move), errChunk, BadHeader},
		{"position before the count word", head(1, 0, 1, at-4, seg, 0, 0, 0, move), errChunk, BadChunk},
		{"position inside the arguments that follow", head(1, 0, 1, at+4, seg, 0, 0, 0, rpcCall(badXID, procMove, moveArgs([]int{0}))), errChunk, BadChunk},
		{"position at the end of the arguments", head(1, 0, 1, at+8, seg, 0, 0, 0, rpcCall(badXID, procMove, moveArgs([]int{0}))), errChunk, BadChunk},
		{"positions overlap", head(1, 0, 1, at, seg, 1, at+96, seg, 0, 0, 0, move), errChunk, BadChunk},
		{"chunk shorter than its count", head(1, 0, 1, at, wire.Segment{Length: 96}, 0, 0, 0, move), garbage, BadArguments},
		{"chunk longer than its count", head(1, 0, 1, at, wire.Segment{Length: 104}, 0, 0, 0, move), garbage, BadArguments},
		{"count above the limit", head(1, 0, 1, at, seg, 0, 0, 0, rpcCall(badXID, procMove, moveArgs([]int{maxItem + 1}))), garbage, BadArguments},
		{"chunk in a procedure without eligible arguments", head(1, 0, 1, 40, seg, 0, 0, 0, null), errChunk, BadChunk},
		{"chunk in an opaque that is not eligible", head(1, 0, 1, 44, seg, 0, 0, 0, rpcCall(badXID, procPlain, 100, 0)), errChunk, BadChunk},
		{"chunk for a program without binding", head(1, 0, 1, 44, seg, 0, 0, 0, words(badXID, 0, 2, 99, 1, 0, 0, 0, 0, 0, 100)), errChunk, BadChunk},
		{"a chunk above the limit", head(1, 0, 1, at, huge, 0, 0, 0, move), errChunk, BadChunk},
		{"segments above the limit together", head(1, 0, readsOf(3, at, long), 0, 0, 0, move), errChunk, BadChunk},
		{"chunks above the limit together", head(1, 0, readsOf(1, at, long), readsOf(2, at+4<<20, long), 0, 0, 0, move), errChunk, BadChunk},
		{"more than the budget", head(1, 0, readsOf(1, at, wire.Segment{Length: 3 << 20}), 0, 0, 0, rpcCall(badXID, procMove, moveArgs([]int{3 << 20}))), errChunk, TooLarge},
		{"reply chunk and result above the budget", head(1, 0, 0, 1, 1, huge, 0, 1, 1, huge, rpcCall(badXID, procMove, moveArgs(nil, maxItem))), errChunk, TooLarge},
		{"result longer than its Write chunk", head(1, 0, 0, 1, 1, wire.Segment{Length: 99}, 0, 0, rpcCall(badXID, procMove, moveArgs(nil, 100))), errChunk, ReplyTooLong},
		{"reply longer than anything", head(1, 0, 0, 0, 0, rpcCall(badXID, procPlain, 0, 10000)), errChunk, ReplyTooLong},
		{"reply longer than the Reply chunk", head(1, 0, 0, 0, 1, 1, seg, rpcCall(badXID, procPlain, 0, 10000)), errChunk, ReplyTooLong},
	}
	whole := head(1, 0, 1, at, seg, 0, 1, 1, seg, 0, 1, 1, seg)
	for n := wire.MinSize; n < len(whole); n++ {
		cases = append(cases, badCase{"header cut", whole[:n], errChunk, BadHeader})
	}
	return cases
}

func TestBadMessages(t *testing.T) {
	w := newEnv(t, rdmatest.Options{}, func(cfg *Config) { cfg.Budget = bufpool.NewBudget(2<<20, 2<<20) })
	other := w.dial(nil)
	if err := null(other, w.cpool, procNull); err != nil {
		t.Fatal(err)
	}
	// nothing is exposed that could be invalidated
	p := w.rawDial(wire.PrivateData{SendSize: 4096, ReceiveSize: 4096}.Append(nil))
	p.null(1)
	for i, c := range badCases() {
		t.Run(c.name, func(t *testing.T) {
			p.t, w.t = t, t
			before := w.counts.faults(c.what)
			p.send(c.msg)
			if c.want != silence {
				checkVerdict(t, p, p.get().b, c.want)
			}
			p.null(1000 + i) // the receive is back, and nothing else was sent
			p.none()
			w.waitIdle()
			if got := w.counts.faults(c.what) - before; got != 1 {
				t.Errorf("%v counted %d times", c.what, got)
			}
		})
	}
	p.t, w.t = t, t
	if err := (&move{args: []int{5000}, results: []int{6000}}).do(other, w.cpool); err != nil {
		t.Errorf("another connection: %v", err)
	}
	p.close()
	w.close(other)
}

func checkVerdict(t *testing.T, p *rawPeer, b []byte, want verdict) {
	t.Helper()
	h, payload := p.parse(b)
	if h.XID != badXID || h.Credits == 0 {
		t.Errorf("answer %x", b)
	}
	stat := func(at int) uint32 {
		if len(payload) < at+4 {
			return 0xffffffff
		}
		return binary.BigEndian.Uint32(payload[at:])
	}
	switch want {
	case errVers:
		if h.Procedure != wire.Error || h.Code != wire.ErrVers || h.Low != 1 || h.High != 1 || len(payload) > 0 {
			t.Errorf("answer %x, want ERR_VERS", b)
		}
	case errChunk:
		if h.Procedure != wire.Error || h.Code != wire.ErrChunk || h.Version != 1 || len(payload) > 0 {
			t.Errorf("answer %x, want ERR_CHUNK", b)
		}
	case garbage:
		if h.Procedure != wire.Msg || stat(4) != 1 || stat(8) != 0 || oncrpc.AcceptStat(stat(20)) != oncrpc.GarbageArgs {
			t.Errorf("answer %x, want GARBAGE_ARGS", b)
		}
	case mismatch:
		if h.Procedure != wire.Msg || stat(8) != 1 || oncrpc.RejectStat(stat(12)) != oncrpc.RPCMismatch {
			t.Errorf("answer %x, want RPC_MISMATCH", b)
		}
	case badCred:
		if h.Procedure != wire.Msg || stat(8) != 1 || oncrpc.RejectStat(stat(12)) != oncrpc.AuthError {
			t.Errorf("answer %x, want AUTH_ERROR", b)
		}
	}
}

// TestErrVersBytes is vector e.4: the answer to a probe of version 2.
func TestErrVersBytes(t *testing.T) {
	w := newEnv(t, rdmatest.Options{}, nil)
	p := w.rawDial(nil)
	p.send(append(words(7, 2, 5, 0, 0, 0, 0), rpcCall(7, procNull)...))
	if got, want := p.get().b, words(7, 2, 5, 4, 1, 1, 1); !bytes.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
	p.null(8)
	p.close()
	w.close()
}

// TestBadMemory lets a call name memory that it has no right to: the connection ends, and nothing
// else.
func TestBadMemory(t *testing.T) {
	at := 48
	for _, c := range []struct {
		name string
		msg  func(p *rawPeer) []byte
	}{
		{"Read of an unknown handle", func(p *rawPeer) []byte {
			return head(1, 0, 1, at, wire.Segment{Handle: 5, Length: 100}, 0, 0, 0, rpcCall(badXID, procMove, moveArgs([]int{100})))
		}},
		{"Read of memory exposed for writing", func(p *rawPeer) []byte {
			return head(1, 0, 1, at, p.expose(p.mem(100), rdma.RemoteWrite), 0, 0, 0, rpcCall(badXID, procMove, moveArgs([]int{100})))
		}},
		{"Read out of bounds", func(p *rawPeer) []byte {
			s := p.expose(p.mem(100), rdma.RemoteRead)
			s.Length = 200
			return head(1, 0, 1, at, s, 0, 0, 0, rpcCall(badXID, procMove, moveArgs([]int{200})))
		}},
		{"long call from an unknown handle", func(p *rawPeer) []byte {
			return head(1, 1, 1, 0, wire.Segment{Handle: 5, Length: 100}, 0, 0, 0)
		}},
		{"Write to an unknown handle", func(p *rawPeer) []byte {
			return head(1, 0, 0, 1, 1, wire.Segment{Handle: 5, Length: 100}, 0, 0, rpcCall(badXID, procMove, moveArgs(nil, 100)))
		}},
		{"Write to memory exposed for reading", func(p *rawPeer) []byte {
			return head(1, 0, 0, 1, 1, p.expose(p.mem(100), rdma.RemoteRead), 0, 0, rpcCall(badXID, procMove, moveArgs(nil, 100)))
		}},
		{"Write out of bounds", func(p *rawPeer) []byte {
			s := p.expose(p.mem(100), rdma.RemoteWrite)
			s.Offset += 8
			return head(1, 0, 0, 1, 1, s, 0, 0, rpcCall(badXID, procMove, moveArgs(nil, 100)))
		}},
		{"Reply chunk of an unknown handle", func(p *rawPeer) []byte {
			return head(1, 0, 0, 0, 1, 1, wire.Segment{Handle: 5, Length: 10000}, rpcCall(badXID, procPlain, 0, 5000))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newEnv(t, rdmatest.Options{}, nil)
			other := w.dial(nil)
			p := w.rawDial(rawPrivate(4096))
			p.null(1)
			p.send(c.msg(p))
			if err := p.end(); !errors.Is(err, rdmatest.ErrRemoteAccess) {
				t.Errorf("connection ended with %v", err)
			}
			eventually(t, "bad_memory is counted", func() bool { return w.counts.faults(BadMemory) == 1 })
			again := w.rawDial(rawPrivate(4096)) // with the same call once more, after another
			again.null(1)
			again.send(c.msg(again))
			checkVerdict(t, again, again.get().b, errChunk)
			if n := w.counts.faults(BadRetry); n != 1 {
				t.Errorf("bad_retry counted %d times", n)
			}
			again.null(2)
			again.close()
			if err := (&move{args: []int{5000}, results: []int{6000}}).do(other, w.cpool); err != nil {
				t.Errorf("another connection: %v", err)
			}
			p.close()
			w.close(other)
		})
	}
}

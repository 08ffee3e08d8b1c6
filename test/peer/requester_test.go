package peer

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/binding"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma/iwarp"
	"sluice.dev/sluice/pkg/rpcrdma"
	"sluice.dev/sluice/pkg/xdr"
	"sluice.dev/sluice/test/prereq"
)

// limit is the longest time of a case.
const limit = 2 * time.Minute

// requester makes the calls of a case of server.py.
type requester struct {
	t    *testing.T
	ctx  context.Context
	c    *rpcrdma.Client
	pool *bufpool.Pool
}

// TestRequester runs each case of the peer as a server: the requester makes the calls, and each
// result is compared byte by byte, as the server does with each call.
func TestRequester(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		prereq.Missing(t, "python3 is not installed: %v", err)
	}
	handle := opaque("handle")
	read3 := func(n uint32) []any { return []any{handle, uint64(0), n} }
	write3 := func(n, k int) []any { return []any{handle, uint64(0), uint32(n), uint32(2), data{n, k}} }
	haveRead3 := func(n, k int) []byte { return bytesOf(0, 0, n, 1, n, pattern(n, k), pad(n)) }
	wrote3 := func(n int) []byte { return bytesOf(0, 0, 0, n, 2, 0, 0) }
	readDir := []any{handle, uint64(0), uint64(0), uint32(8000), uint32(8000)}
	long := func(n int) (ops []any) {
		for k := range n {
			ops = append(ops, lookup(101, k))
		}
		return ops
	}
	noEntry := bytesOf(0, 0, 2, 24, 0, 15, 2)
	threeReads := func(q *requester) {
		want := bytesOf(0, 0, 3, 25, 0, 0, 5001, pattern(5001, 7), pad(5001), 25, 0, 1, 0, 25, 0, 1, 5003, pattern(5003, 8), pad(5003))
		q.want(want, 4, 1, compound(read4(0, 5001), read4(1, 6002), read4(2, 7003))...)
	}
	refused := func(version, procedure uint32, args ...any) func(*requester) {
		return func(q *requester) {
			q.t.Helper()
			if e := new(rpcrdma.RemoteError); !errors.As(q.do(version, procedure, args...).err, &e) {
				q.t.Errorf("a refused call ended with %v", e)
			}
		}
	}
	acl := []any{uint32(9), uint32(1), uint32(1 << 12)}

	for name, c := range map[string]struct {
		cfg func(*rpcrdma.Config)
		run func(*requester)
	}{
		"two_read_chunks": {run: func(q *requester) {
			q.want(bytesOf(0, 0, 3, 24, 0, 38, 0, 6001, 2, 0, 0, 38, 0, 7002, 2, 0, 0), 4, 1, compound(putrootfh, write4(0, 6001, 1), write4(6001, 7002, 2))...)
		}},
		"two_write_chunks": {run: func(q *requester) {
			want := bytesOf(0, 0, 3, 24, 0, 25, 0, 0, 5001, pattern(5001, 3), pad(5001), 25, 0, 1, 6002, pattern(6002, 4), pad(6002))
			q.want(want, 4, 1, compound(putrootfh, read4(0, 5001), read4(5001, 6002))...)
		}},
		"read_and_write_chunks": {run: func(q *requester) {
			want := bytesOf(0, 0, 3, 24, 0, 38, 0, 9003, 2, 0, 0, 25, 0, 1, 4999, pattern(4999, 6), pad(4999))
			q.want(want, 4, 1, compound(putrootfh, write4(0, 9003, 5), read4(7, 8005))...)
		}},
		"empty_result":        {run: threeReads},
		"empty_result_slides": {run: threeReads},
		"unused_write_chunk": {run: func(q *requester) {
			for range 4 {
				q.want(bytesOf(5, 0), 3, 6, read3(6000)...)
			}
		}},
		"round_up":  {run: func(q *requester) { q.want(haveRead3(6001, 9), 3, 6, read3(6001)...) }},
		"long_call": {run: func(q *requester) { q.want(noEntry, 4, 1, compound(append([]any{putrootfh}, long(60)...)...)...) }},
		"long_call_and_argument": {run: func(q *requester) {
			q.want(noEntry, 4, 1, compound(append(append([]any{putrootfh}, long(40)...), write4(0, 9001, 10))...)...)
		}},
		"long_reply": {run: func(q *requester) {
			q.want(pattern(7996, 11), 3, 17, readDir...)
			q.want(pattern(200, 12), 3, 17, readDir...)
		}},
		"reply_grows": {run: func(q *requester) {
			want := bytesOf(0, 0, 2, 24, 0, 9, 0, 1, 1<<12, 200_001, pattern(200_001, 13), pad(200_001))
			q.want(want, 4, 1, compound(putrootfh, acl)...)
		}},
		"reply_does_not_grow": {run: refused(4, 1, compound(putrootfh, []any{uint32(28), opaque("victim")}, acl)...)},
		"err_chunk": {run: func(q *requester) {
			refused(3, 6, read3(6000)...)(q)
			refused(3, 7, write3(9000, 14)...)(q)
			refused(3, 17, readDir...)(q)
			refused(4, 1, compound(append([]any{putrootfh}, long(60)...)...)...)(q)
			refused(3, 6, read3(60)...)(q)
		}},
		"bad_replies": {run: func(q *requester) {
			bad := 0
			for ; ; bad++ {
				r := q.do(3, 6, read3(6000)...)
				if r.err == nil {
					q.compare(r.results, haveRead3(6000, 15))
					break
				}
				if lost := new(rpcrdma.LostError); errors.As(r.err, &lost) {
					q.t.Fatal(r.err)
				}
				q.null()
			}
			if bad < 15 {
				q.t.Errorf("%d bad replies", bad)
			}
		}},
		"remote_invalidation": {
			cfg: func(cfg *rpcrdma.Config) { cfg.RemoteInvalidation = true },
			run: func(q *requester) {
				q.want(haveRead3(6000, 16), 3, 6, read3(6000)...)
				q.want(wrote3(9000), 3, 7, write3(9000, 17)...)
			},
		},
		"padding": {forms(rpcrdma.Padding), func(q *requester) {
			q.want(wrote3(3001), 3, 7, write3(3001, 18)...)
			q.want(haveRead3(2500, 19), 3, 6, read3(2500)...)
		}},
		"padding_refused": {forms(rpcrdma.Padding), func(q *requester) {
			q.want(wrote3(3001), 3, 7, write3(3001, 18)...)
			q.want(wrote3(3001), 3, 7, write3(3001, 18)...)
		}},
		"read_read_data": {forms(rpcrdma.ReadRead), func(q *requester) {
			want := bytesOf(0, 0, 2, 25, 0, 0, 9001, pattern(9001, 20), pad(9001), 25, 0, 1, 8002, pattern(8002, 21), pad(8002))
			q.want(want, 4, 1, compound(read4(0, 9001), read4(9001, 8002))...)
		}},
		"read_read_long": {forms(rpcrdma.ReadRead), func(q *requester) { q.want(pattern(7996, 22), 3, 17, readDir...) }},
		"read_read_refused": {forms(rpcrdma.ReadRead), func(q *requester) {
			q.want(haveRead3(6000, 23), 3, 6, read3(6000)...)
			q.want(haveRead3(6000, 23), 3, 6, read3(6000)...)
		}},
		"configuration": {
			cfg: func(cfg *rpcrdma.Config) {
				cfg.RFC5666, cfg.InlineCall, cfg.InlineReply = rpcrdma.Configuration|rpcrdma.Padding, 8192, 8192
			},
			run: func(q *requester) {
				if n := q.c.Negotiated(); !n.Configured || n.InlineCall != 8192 || n.InlineReply != 8192 || n.Padding != 1024 {
					q.t.Errorf("%+v", n)
				}
				q.want(wrote3(7001), 3, 7, write3(7001, 24)...)
				q.want(haveRead3(7001, 25), 3, 6, read3(7001)...)
			},
		},
		"configuration_missing": {forms(rpcrdma.Configuration | rpcrdma.Padding), func(q *requester) {
			if n := q.c.Negotiated(); n.Configured || n.InlineCall != 1024 || n.InlineReply != 1024 || n.Padding != 0 {
				q.t.Errorf("%+v", n)
			}
			q.want(wrote3(1400), 3, 7, write3(1400, 26)...)
			q.want(haveRead3(1400, 27), 3, 6, read3(1400)...)
		}},
		"err_vers": {
			cfg: func(cfg *rpcrdma.Config) { cfg.Versions, cfg.Extensions = []int{1, 2}, rpcrdma.TransportProperties },
			run: func(q *requester) {
				if n := q.c.Negotiated(); n.Version != 1 {
					q.t.Errorf("version %d is used", n.Version)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) { runRequester(t, python, name, c.cfg, c.run) })
	}
}

func forms(set rpcrdma.RFC5666) func(*rpcrdma.Config) {
	return func(cfg *rpcrdma.Config) { cfg.RFC5666 = set }
}

// runRequester starts the server of a case, and makes its calls.
func runRequester(t *testing.T, python, name string, change func(*rpcrdma.Config), run func(*requester)) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "-B", filepath.Join("testdata", "server.py"), name)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	defer func() {
		if t.Failed() {
			cancel()
		}
		said, _ := io.ReadAll(lines)
		if err := cmd.Wait(); err != nil || strings.TrimSpace(string(said)) != "ok" {
			t.Errorf("the server: %v: %s%s", err, said, errs.String())
		}
	}()
	address, err := lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	p, err := iwarp.New(iwarp.Config{ReplyTimeout: limit})
	if err != nil {
		t.Fatal(err)
	}
	q := &requester{t: t, ctx: ctx, pool: bufpool.New(0)}
	cfg := rpcrdma.Config{Pool: q.pool, Bindings: binding.For}
	if change != nil {
		change(&cfg)
	}
	if q.c, err = rpcrdma.Dial(ctx, p, strings.TrimSpace(address), cfg); err != nil {
		t.Fatal(err)
	}
	q.null()
	run(q)
	q.null()
	if err := q.c.Close(); err != nil {
		t.Error(err)
	}
	<-q.c.Done()
	if n := q.pool.Stats().Bufs; n != 0 {
		t.Errorf("%d buffers are still in use", n)
	}
}

// outcome is the end of a call: the unreduced results.
type outcome struct {
	results []byte
	err     error
}

// do makes a call of NFS. Its arguments are words, opaques and data, also in lists.
func (q *requester) do(version, procedure uint32, args ...any) outcome {
	q.t.Helper()
	r, e, err := oncrpc.NewRequest(q.pool, 100003, version, procedure, oncrpc.Auth{}, 1<<16)
	if err != nil {
		q.t.Fatal(err)
	}
	defer r.Free()
	var mem []*bufpool.Buf
	defer func() {
		for _, b := range mem {
			b.Release()
		}
	}()
	q.encode(e, &mem, args)
	if err := r.Seal(); err != nil {
		q.t.Fatal(err)
	}
	if b := binding.For(r.Program, r.Version); procedure != 0 {
		var d xdr.Decoder
		d.Reset(r.Call.Stream, r.Call.Items)
		d.Skip(r.ArgsAt)
		if r.Eligible, err = b.Plan(&r.Plan, r.Eligible[:0], procedure, &d); err != nil {
			q.t.Fatal(err)
		}
	}
	r.Plan.MaxReply += oncrpc.MinReplyLen
	if err := oncrpc.Do(q.ctx, q.c, r); err != nil {
		return outcome{err: err}
	}
	if _, err := r.Results(); err != nil {
		return outcome{err: err}
	}
	return outcome{results: flat(&r.Reply)[oncrpc.MinReplyLen:]}
}

func (q *requester) encode(e *xdr.Encoder, mem *[]*bufpool.Buf, args []any) {
	for _, a := range args {
		switch a := a.(type) {
		case []any:
			q.encode(e, mem, a)
		case uint32:
			e.Uint32(a)
		case uint64:
			e.Uint64(a)
		case opaque:
			e.Opaque([]byte(a))
		case data:
			b, err := q.pool.Get(a.n)
			if err != nil {
				q.t.Fatal(err)
			}
			*mem = append(*mem, b)
			copy(b.B, pattern(a.n, a.k))
			e.Bulk([][]byte{b.B}, a.n)
		default:
			q.t.Fatalf("%T is no argument", a)
		}
	}
}

// want makes a call, and compares its results.
func (q *requester) want(results []byte, version, procedure uint32, args ...any) {
	q.t.Helper()
	r := q.do(version, procedure, args...)
	if r.err != nil {
		q.t.Fatal(r.err)
	}
	q.compare(r.results, results)
}

func (q *requester) compare(got, want []byte) {
	q.t.Helper()
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	if at < max(len(got), len(want)) {
		q.t.Errorf("results of %d bytes, must be %d; the first difference is at %d", len(got), len(want), at)
	}
}

func (q *requester) null() {
	q.t.Helper()
	q.want(nil, 3, 0)
}

// opaque is an inline argument, data one that may move by RDMA: n bytes of pattern k.
type (
	opaque string
	data   struct{ n, k int }
)

// pattern is that of peer.py.
func pattern(n, k int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*31 + k*7 + i>>8)
	}
	return b
}

func pad(n int) []byte { return make([]byte, xdr.Pad(n)) }

// bytesOf joins words and bytes.
func bytesOf(list ...any) (b []byte) {
	for _, v := range list {
		switch v := v.(type) {
		case int:
			b = binary.BigEndian.AppendUint32(b, uint32(v))
		case []byte:
			b = append(b, v...)
		}
	}
	return b
}

// flat returns the unreduced stream of a message.
func flat(m *oncrpc.Message) (b []byte) {
	inline := bytes.Join(m.Stream, nil)
	for _, it := range m.Items {
		n := it.Position - len(b)
		b, inline = append(b, inline[:n]...), inline[n:]
		b = append(append(b, bytes.Join(it.Data, nil)...), pad(it.Length)...)
	}
	return append(b, inline...)
}

// Operations of a COMPOUND of version 4.0.

var putrootfh = []any{uint32(24)}

func compound(operations ...any) []any {
	return append([]any{opaque(""), uint32(0), uint32(len(operations))}, operations...)
}

func write4(offset uint64, n, k int) []any {
	return []any{uint32(38), uint64(0), uint64(0), offset, uint32(2), data{n, k}}
}

func read4(offset uint64, n uint32) []any {
	return []any{uint32(25), uint64(0), uint64(0), offset, n}
}

func lookup(n, k int) []any { return []any{uint32(15), opaque(pattern(n, k))} }

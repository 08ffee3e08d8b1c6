//go:build kernel

package hostile

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/nfs/nfs4test"
	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/nfs/sign"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma/iwarp"
	"sluice.dev/sluice/pkg/rpcrdma"
	"sluice.dev/sluice/pkg/xdr"
)

// raw and fields are shorthands of nfs4test's.
type raw = nfs4test.Raw

var (
	op     = nfs4test.Op
	fields = nfs4test.Fields
	bitmap = nfs4test.Bitmap
)

// intruder is a hostile client on a connection of its own.
type intruder struct {
	*testing.T
	ctx  context.Context
	gate *gate
	nfs4test.Caller
	session *nfs4test.Session
}

// patience is the limit for waits that should end at once.
const patience = time.Minute

var networks = []string{"tcp", "rdma"}

// intrude connects to a gate over "tcp" or "rdma", as a user.
func (g *gate) intrude(t *testing.T, network string, uid uint32) *intruder {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	c := &intruder{T: t, ctx: ctx, gate: g}
	c.Pool, c.Cred = g.h.pool(), cred(t, machine, uid)
	if network == "tcp" {
		conn, err := oncrpc.Dial(t.Context(), g.tcp, oncrpc.Config{Pool: c.Pool})
		check(t, err)
		c.Requester = conn
		t.Cleanup(func() { _ = conn.Close(); conn.Wait() })
	} else {
		provider, err := iwarp.New(iwarp.Config{})
		check(t, err)
		conn, err := rpcrdma.Dial(t.Context(), provider, g.rdma, rpcrdma.Config{Pool: c.Pool, InlineCall: 1024})
		check(t, err)
		c.Requester = conn
		t.Cleanup(func() { _ = conn.Close(); <-conn.Done() })
	}
	c.Seen = c.look
	return c
}

// begin makes a session of version 4.2.
func (c *intruder) begin(slots int) {
	c.Helper()
	s, err := nfs4test.NewSession(c.ctx, &c.Caller, 2, fmt.Sprintf("%s %p", c.Name(), c), slots, 0, 0)
	check(c, err)
	c.session = s
	c.want(c.next(op(schema.OpReclaimComplete, false)), 0, schema.OpReclaimComplete)
}

// look searches a reply for leaks.
func (c *intruder) look(reply []byte) {
	for what, b := range c.gate.h.leaks {
		if bytes.Contains(reply, b) {
			c.Errorf("the client got to see %s: %x", what, reply)
		}
	}
}

// handles checks that the handles in results are signed and lead inside.
func (c *intruder) handles(spans []schema.Span) {
	c.Helper()
	for i := range spans {
		s := &spans[i]
		b := s.B
		switch {
		case s.Mark == schema.Handle:
		case s.Mark == schema.Attr && s.Value == schema.AttrFileHandle:
			b = b[4 : 4+binary.BigEndian.Uint32(b)]
		default:
			continue
		}
		handle, ok := b, true // a volume has no other handles
		if c.gate.signer != nil {
			handle, ok = c.gate.signer.Verify(b, sign.Max4)
		}
		if !ok {
			c.Errorf("the client got the handle %x, which is not signed", b)
		} else if !c.gate.h.isInside(handle) {
			c.Errorf("the client got a handle that leads outside: %x", handle)
		}
	}
}

// compound sends a COMPOUND.
func (c *intruder) compound(minor uint32, ops ...raw) *nfs4test.Results {
	c.Helper()
	res, err := c.Compound(c.ctx, minor, ops...)
	check(c, err)
	c.handles(res.Spans)
	return res
}

// next sends a COMPOUND in the next turn of slot 0. It must reach the backend, and its repetition
// must have the same reply. READ and READDIR are not repeated: Ganesha answers such a repetition
// from freed memory, and may crash.
func (c *intruder) next(ops ...raw) *nfs4test.Results {
	c.Helper()
	res := c.first(ops)
	if len(res.Ops) == 0 || res.Ops[0].Code != schema.OpSequence || res.Ops[0].Status != 0 {
		c.Fatalf("SEQUENCE was answered %+v: the slot is out of step", res.Ops)
	}
	for _, r := range res.Ops {
		if r.Status == 0 && (r.Code == schema.OpRead || r.Code == schema.OpReaddir) {
			return res
		}
	}
	again, err := c.session.Again(c.ctx, 0, ops...)
	check(c, err)
	if !bytes.Equal(again.Bytes, res.Bytes) {
		c.Errorf("sent again, it was answered\n%x\nand before\n%x", again.Bytes, res.Bytes)
	}
	return res
}

// first sends a COMPOUND in the next turn of slot 0, and checks that it reached the backend.
func (c *intruder) first(ops []raw) *nfs4test.Results {
	c.Helper()
	relay := c.gate.h.relay
	if relay == nil { // a volume
		res, err := c.session.Next(c.ctx, 0, ops...)
		check(c, err)
		c.handles(res.Spans)
		return res
	}
	before := relay.count()
	res, err := c.session.Next(c.ctx, 0, ops...)
	check(c, err)
	c.handles(res.Spans)
	passed := relay.since(before)
	if len(passed) != 1 || !passed[0].sequenced() {
		c.Errorf("the backend got %v, want one COMPOUND with SEQUENCE", passed)
	}
	return res
}

// want checks the status of the last operation, which is that of the whole.
func (c *intruder) want(res *nfs4test.Results, status uint32, code int) {
	c.Helper()
	last := schema.Op{}
	if n := len(res.Ops); n > 0 {
		last = res.Ops[n-1]
	}
	if res.Status != status || last.Code != uint32(code) || last.Status != status {
		c.Errorf("status %d, and the last of %d results of operation %d with status %d; want operation %d with status %d",
			res.Status, len(res.Ops), last.Code, last.Status, code, status)
	}
}

// fine sends a COMPOUND without faults, to check that the session works.
func (c *intruder) fine() {
	c.Helper()
	c.want(c.next(op(schema.OpPutRootFH), op(schema.OpLookup, "file"), op(schema.OpGetFH)), 0, schema.OpGetFH)
}

// walk returns the handle at the end of the names.
func (c *intruder) walk(names ...string) []byte {
	c.Helper()
	ops := []raw{op(schema.OpPutRootFH)}
	for _, name := range names {
		ops = append(ops, op(schema.OpLookup, name))
	}
	res := c.next(append(ops, op(schema.OpGetFH))...)
	return slices.Clone(res.Handle(c, len(res.Ops)-1))
}

// call3 calls a procedure of NFS version 3 or of another program, and returns the status and the
// results.
func (c *intruder) call3(program, procedure uint32, args raw) (status uint32, spans []schema.Span, results []byte) {
	c.Helper()
	b, err := c.Call(c.ctx, program, 3, procedure, args)
	check(c, err)
	var w schema.Walker
	var d xdr.Decoder
	d.ResetBytes(b)
	check(c, w.Results(schema.Proc{Program: program, Version: 3, Procedure: procedure}, &d))
	c.handles(w.Spans)
	if len(w.Spans) == 0 {
		return 0, nil, b
	}
	return uint32(w.Spans[0].Value), w.Spans, b
}

// handleIn returns the first handle in results.
func handleIn(t testing.TB, spans []schema.Span) []byte {
	t.Helper()
	for i := range spans {
		if spans[i].Mark == schema.Handle {
			return bytes.Clone(spans[i].B)
		}
	}
	t.Fatal("the results have no handle")
	return nil
}

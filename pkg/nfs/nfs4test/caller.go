package nfs4test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

// Program numbers.
const (
	NFS    = 100003
	Mount  = 100005
	NFSACL = 100227
)

// maxReply is the longest reply.
const maxReply = 256 << 10

// Caller makes calls on a connection.
type Caller struct {
	Requester oncrpc.Requester
	Pool      *bufpool.Pool
	Cred      oncrpc.Auth
	// Seen, if set, gets the bytes of each reply.
	Seen func(reply []byte)
}

// Call calls a procedure, and returns its results. A reply without results is an
// [*oncrpc.StatusError].
func (c *Caller) Call(ctx context.Context, program, version, procedure uint32, args Raw) ([]byte, error) {
	r, e, err := oncrpc.NewRequest(c.Pool, program, version, procedure, c.Cred, oncrpc.MinCallLen+oncrpc.MaxAuthLen+len(args))
	if err != nil {
		return nil, err
	}
	defer r.Free()
	copy(e.Grow(len(args)), args)
	r.Plan.MaxReply = maxReply
	if err := oncrpc.Do(ctx, c.Requester, r); err != nil {
		return nil, err
	}
	reply := slices.Concat(r.Reply.Gather(nil)...)
	if c.Seen != nil {
		c.Seen(reply)
	}
	d, err := r.Results()
	if err != nil {
		return nil, err
	}
	return reply[d.Pos():], nil
}

// Compound calls COMPOUND with the given operations.
func (c *Caller) Compound(ctx context.Context, minor uint32, ops ...Raw) (*Results, error) {
	b, err := c.Call(ctx, NFS, 4, 1, Fields("", minor, len(ops), slices.Concat(ops...)))
	if err != nil {
		return nil, err
	}
	return Read(b)
}

// Results are the results of a COMPOUND.
type Results struct {
	// Bytes are the encoded results, from the status on.
	Bytes  []byte
	Status uint32
	// Ops are the single results, with positions in Bytes.
	Ops   []schema.Op
	Spans []schema.Span
}

// Read reads the results of a COMPOUND.
func Read(b []byte) (*Results, error) {
	var w schema.Walker
	var d xdr.Decoder
	d.ResetBytes(b)
	if err := w.Results(schema.Proc{Program: NFS, Version: 4, Procedure: 1}, &d); err != nil {
		return nil, fmt.Errorf("results %x: %w", b, err)
	}
	if d.Left() > 0 {
		return nil, fmt.Errorf("%d bytes stand behind the results %x", d.Left(), b)
	}
	return &Results{b, uint32(w.Spans[0].Value), w.Ops, w.Spans}, nil
}

// Find returns the first field with the mark in the results of operation i, or nil.
func (r *Results) Find(i int, mark schema.Mark) *schema.Span {
	if i >= len(r.Ops) {
		return nil
	}
	for at := r.Ops[i].First; at < r.Ops[i].Last; at++ {
		if r.Spans[at].Mark == mark {
			return &r.Spans[at]
		}
	}
	return nil
}

// Handle returns the file handle in the result of operation i.
func (r *Results) Handle(tb testing.TB, i int) []byte {
	tb.Helper()
	s := r.Find(i, schema.Handle)
	if s == nil {
		tb.Fatalf("status %d, %d results: there is no handle in result %d", r.Status, len(r.Ops), i)
	}
	return s.B
}

// Op returns the bytes of result i, after its number and status.
func (r *Results) Op(i int) []byte { return r.Bytes[r.Ops[i].Pos+8 : r.Ops[i].End] }

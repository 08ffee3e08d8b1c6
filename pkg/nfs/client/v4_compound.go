package client

import (
	"context"
	"fmt"

	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

const (
	minorVersion = 2
	// sequenceAt is the position of SEQUENCE's arguments in those of COMPOUND: after an empty tag,
	// the minor version, the count of operations and the first one's number.
	sequenceAt = 16
	// fixedOps bounds the arguments of a COMPOUND without names and data: SEQUENCE, two PUTFH, and
	// an OPEN or a SETATTR.
	fixedOps = 1 << 10
)

// operation is one of a COMPOUND. Its arguments may be nil.
type operation struct {
	op   nfs4.Op
	args encoder
}

// compound are the arguments of COMPOUND.
type compound []operation

// Encode writes c.
func (c compound) Encode(e *xdr.Encoder) {
	head := nfs4.CompoundArgs{Minor: minorVersion, Count: uint32(len(c))}
	head.Encode(e)
	for _, o := range c {
		e.Uint32(uint32(o.op))
		if o.args != nil {
			o.args.Encode(e)
		}
	}
}

// sequence begins the COMPOUNDs of a session, which fills it in. The server keeps the reply of a
// call that must not be executed twice.
func sequence(once bool) operation {
	return operation{nfs4.OpSequence, &nfs4.SequenceArgs{CacheThis: once}}
}

func putFH(file []byte) operation {
	return operation{nfs4.OpPutFH, &nfs4.PutFHArgs{Object: file}}
}

func named(op nfs4.Op, name string) operation {
	return operation{op, &nfs4.NameArgs{Name: []byte(name)}}
}

// compoundError is the status of a COMPOUND's first operation that failed.
type compoundError struct {
	op     nfs4.Op
	status nfs4.Status
}

func (e *compoundError) Error() string { return e.op.String() + ": " + e.status.Error() }
func (e *compoundError) Unwrap() error { return e.status }

// results are those of a COMPOUND, to be read one by one.
type results struct {
	d      *xdr.Decoder
	status nfs4.Status
	left   uint32
}

// begin reads the head of the results in d.
func (r *results) begin(d *xdr.Decoder) error {
	var head nfs4.CompoundRes
	head.Decode(d)
	*r = results{d, head.Status, head.Count}
	return d.Err()
}

// next begins the result of the next operation, which must be op. A status other than OK is a
// *compoundError.
func (r *results) next(op nfs4.Op) error {
	if r.left == 0 {
		if r.status != nfs4.OK {
			return &compoundError{op, r.status}
		}
		return fmt.Errorf("%s: the server left out its result", op)
	}
	r.left--
	got, status := nfs4.Op(r.d.Uint32()), nfs4.Status(r.d.Uint32())
	switch {
	case r.d.Err() != nil:
		return r.d.Err()
	case got != op:
		return fmt.Errorf("the result of %s is due, that of operation %d came", op, got)
	case status != nfs4.OK:
		return &compoundError{op, status}
	}
	return nil
}

// get reads the result of the next operation into res.
func (r *results) get(op nfs4.Op, res decoder) error {
	if err := r.next(op); err != nil {
		return err
	}
	res.Decode(r.d)
	return r.d.Err()
}

// skip reads the results of operations that have none but the status, and of SEQUENCE.
func (r *results) skip(ops ...nfs4.Op) error {
	for _, op := range ops {
		if err := r.next(op); err != nil {
			return err
		}
		if op == nfs4.OpSequence {
			var res nfs4.SequenceRes
			res.Decode(r.d)
		}
	}
	return r.d.Err()
}

// opened begins the results of a call on the current file.
func (r *results) opened() error { return r.skip(nfs4.OpSequence, nfs4.OpPutFH) }

// nothing reads no results.
func nothing(*results) error { return nil }

// exchange makes a COMPOUND on rq, once, and passes its results to read.
func (c *caller) exchange(ctx context.Context, rq oncrpc.Requester, ops compound, size int, read func(*results) error) error {
	r, err := c.newRequest(nfs4.ProcCompound, ops, fixedOps+size)
	if err != nil {
		return err
	}
	defer r.Free()
	if err := oncrpc.Do(ctx, rq, r); err != nil {
		return err
	}
	d, err := r.Results()
	if err != nil {
		return err
	}
	var res results
	if err := res.begin(d); err != nil {
		return err
	}
	return read(&res)
}

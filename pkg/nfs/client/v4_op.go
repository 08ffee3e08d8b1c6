package client

import (
	"fmt"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/xdr"
)

func (c *v4) NewGetAttr(file nfs3.Handle) (*Op, error) {
	return c.newOp(false, nfs4.OpGetAttr, 0, func(o *Op, r *results) error {
		if err := r.opened(); err != nil {
			return err
		}
		if err := r.next(nfs4.OpGetAttr); err != nil {
			return err
		}
		var a v4Attrs
		a.Decode(r.d)
		o.res.Attr = a.attr
		return r.d.Err()
	}, putFH(file), getAttr(fileAttrs))
}

// statusV4 is the decode of an Op for results of which nobody needs more than the status.
func statusV4(_ *Op, r *results) error { return r.status.Err() }

func (c *v4) NewSetAttr(file nfs3.Handle, attrs nfs3.SetAttrs) (*Op, error) {
	return c.newOp(true, nfs4.OpSetAttr, 0, statusV4,
		putFH(file), operation{nfs4.OpSetAttr, &nfs4.SetAttrArgs{Attrs: encodeAttrs(&attrs)}})
}

func (c *v4) NewRename(fromDir nfs3.Handle, from string, toDir nfs3.Handle, to string) (*Op, error) {
	if err := checkName(nfs3.ProcRename, from, to); err != nil {
		return nil, err
	}
	return c.newOp(true, nfs4.OpRename, nameLen(from)+nameLen(to), statusV4, renameOps(fromDir, from, toDir, to)...)
}

// NewCreate makes OPEN and CLOSE.
func (c *v4) NewCreate(dir nfs3.Handle, name string, attrs nfs3.SetAttrs) (*Op, error) {
	ops := c.createOps(dir, name, nfs3.Guarded, attrs, nfs3.Verifier{})
	o, err := c.newNamed(nfs3.ProcCreate, name, nfs4.OpOpen, ops...)
	if err != nil {
		return nil, err
	}
	// Behind OPEN's arguments come GETFH and CLOSE, a number, and a number with 5 words.
	o.nameAt = len(o.r.Call.Stream[0]) - 4 - 4 - 20 - xdr.Round(len(name))
	return o, nil
}

// openCloses reads OPEN's result, that of the operation behind it, and the status of CLOSE.
func openCloses(between func(*Op, *results) error) func(*Op, *results) error {
	open := new(nfs4.OpenRes) // once for all calls
	return func(o *Op, r *results) error {
		if err := r.opened(); err != nil {
			return err
		}
		if err := r.get(nfs4.OpOpen, open); err != nil {
			return err
		}
		if err := between(o, r); err != nil {
			return err
		}
		return r.status.Err()
	}
}

var closeCurrent = operation{nfs4.OpClose, &nfs4.CloseArgs{StateID: nfs4.CurrentStateID}}

func (c *v4) NewOpenRead(file nfs3.Handle, b *bufpool.Buf) (*Op, error) {
	o := &Op{}
	if err := o.setBuf(b); err != nil {
		return nil, fmt.Errorf("READ: %w", err)
	}
	open := c.session.openArgs(ShareRead)
	open.Claim = nfs4.ClaimFH
	read := operation{nfs4.OpRead, &nfs4.ReadArgs{StateID: nfs4.CurrentStateID, Count: uint32(len(b.B))}}
	err := c.initOp(o, false, nfs4.OpOpen, 0, openCloses((*Op).readV4), putFH(file), operation{nfs4.OpOpen, open}, read, closeCurrent)
	if err != nil {
		return nil, err
	}
	// READ's arguments end with offset and count; CLOSE is a number, and a number with 5 words.
	o.countsAt[0] = len(o.r.Call.Stream[0]) - 24 - 4
	o.offsetAt = o.countsAt[0] - 8
	o.r.Plan.Results[0].Memory = o.mem[:]
	return o, nil
}

func (c *v4) NewCreateWrite(dir nfs3.Handle, name string, attrs nfs3.SetAttrs, b *bufpool.Buf, stable nfs3.Stability) (*Op, error) {
	if err := checkName(nfs3.ProcCreate, name); err != nil {
		return nil, err
	}
	o := &Op{nameLen: len(name)}
	if err := o.setBuf(b); err != nil {
		return nil, fmt.Errorf("WRITE: %w", err)
	}
	ops := c.createOps(dir, name, nfs3.Guarded, attrs, nfs3.Verifier{})[:2]
	write := operation{nfs4.OpWrite, &nfs4.WriteArgs{
		StateID: nfs4.CurrentStateID, Stable: nfs4.Stability(stable), Data: o.mem[:], Length: len(b.B),
	}}
	if err := c.initOp(o, true, nfs4.OpOpen, nameLen(name), openCloses((*Op).writeV4), append(ops, write, closeCurrent)...); err != nil {
		return nil, err
	}
	// Between name and data are WRITE's number, stateid, offset, stability and count.
	o.countsAt[0] = o.r.Call.Items[0].Position - 4
	o.offsetAt = o.countsAt[0] - 4 - 8
	o.nameAt = o.offsetAt - 16 - 4 - xdr.Round(len(name))
	return o, nil
}

// NewRemove makes a REMOVE without a look at the object's type.
func (c *v4) NewRemove(dir nfs3.Handle, name string) (*Op, error) {
	o, err := c.newNamed(nfs3.ProcRemove, name, nfs4.OpRemove, putFH(dir), named(nfs4.OpRemove, name))
	if err != nil {
		return nil, err
	}
	o.nameAt = len(o.r.Call.Stream[0]) - xdr.Round(len(name))
	return o, nil
}

func (c *v4) newNamed(procedure uint32, name string, op nfs4.Op, ops ...operation) (*Op, error) {
	if err := checkName(procedure, name); err != nil {
		return nil, err
	}
	o, err := c.newOp(true, op, nameLen(name), statusV4, ops...)
	if err != nil {
		return nil, err
	}
	o.nameLen = len(name)
	return o, nil
}

func (c *v4) newOp(once bool, op nfs4.Op, size int, read func(*Op, *results) error, ops ...operation) (*Op, error) {
	o := &Op{}
	if err := c.initOp(o, once, op, size, read, ops...); err != nil {
		return nil, err
	}
	return o, nil
}

// initOp makes the COMPOUND of an Op; op names it in errors. The other parameters are do's.
func (c *v4) initOp(o *Op, once bool, op nfs4.Op, size int, read func(*Op, *results) error, ops ...operation) error {
	r, err := c.newRequest(nfs4.ProcCompound, append(compound{sequence(once)}, ops...), fixedOps+size)
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	o.init(&c.caller, c.session, op.String(), r, func(o *Op, d *xdr.Decoder) error {
		if err := o.results.begin(d); err != nil {
			return err
		}
		return read(o, &o.results)
	})
	return nil
}

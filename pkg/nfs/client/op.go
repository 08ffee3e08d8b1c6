package client

import (
	"context"
	"encoding/binary"
	"fmt"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

// Op is a call that is encoded once and sent many times, each with a new XID, without allocation. A
// READ or WRITE can change its range in between, a CREATE or REMOVE its name. Only one goroutine
// may use an Op at a time, and none from Submit until its end.
type Op struct {
	c     *Client
	r     *oncrpc.Request
	done  func(*Op)
	ended func(*oncrpc.Request) // calls done; made once to spare Submit the allocation
	wake  chan struct{}

	// For SetRange and SetName.
	rangeAt int          // in the stream: offset, then count; or the name
	nameLen int          // of CREATE and REMOVE
	buf     *bufpool.Buf // the caller's
	mem     [1][]byte
}

// NewGetAttr makes a GETATTR.
func (c *Client) NewGetAttr(file nfs3.Handle) (*Op, error) {
	return c.newOp(nfs3.ProcGetAttr, &nfs3.GetAttrArgs{Object: file}, 0)
}

// NewNull makes a NULL.
func (c *Client) NewNull() (*Op, error) { return c.newOp(nfs3.ProcNull, void{}, 0) }

// NewSetAttr makes a SETATTR without a guard.
func (c *Client) NewSetAttr(file nfs3.Handle, attrs nfs3.SetAttrs) (*Op, error) {
	return c.newOp(nfs3.ProcSetAttr, &nfs3.SetAttrArgs{Object: file, New: attrs}, 0)
}

// NewRename makes a RENAME.
func (c *Client) NewRename(fromDir nfs3.Handle, from string, toDir nfs3.Handle, to string) (*Op, error) {
	if err := checkName(nfs3.ProcRename, from, to); err != nil {
		return nil, err
	}
	args := nfs3.RenameArgs{From: dirOp(fromDir, from), To: dirOp(toDir, to)}
	return c.newOp(nfs3.ProcRename, &args, nameLen(from)+nameLen(to))
}

// NewCreate makes a CREATE of mode GUARDED; SetName changes the name.
func (c *Client) NewCreate(dir nfs3.Handle, name string, attrs nfs3.SetAttrs) (*Op, error) {
	return c.newNamed(nfs3.ProcCreate, dir, name, &nfs3.CreateArgs{Where: dirOp(dir, name), Mode: nfs3.Guarded, Attrs: attrs})
}

// NewRemove makes a REMOVE; SetName changes the name.
func (c *Client) NewRemove(dir nfs3.Handle, name string) (*Op, error) {
	args := dirOp(dir, name)
	return c.newNamed(nfs3.ProcRemove, dir, name, &args)
}

// newNamed makes a call whose arguments begin with a directory and a name.
func (c *Client) newNamed(procedure uint32, dir nfs3.Handle, name string, args encoder) (*Op, error) {
	if err := checkName(procedure, name); err != nil {
		return nil, err
	}
	o, err := c.newOp(procedure, args, nameLen(name))
	if err != nil {
		return nil, err
	}
	o.rangeAt, o.nameLen = o.r.ArgsAt+4+xdr.Round(len(dir))+4, len(name)
	return o, nil
}

// NewRead makes a READ of len(b.B) bytes at offset 0, at most nfs3.MaxData; SetRange moves it. The
// transport places the data in b if it can; see nfs3.ReadRes.Data. The caller releases b after
// Free.
func (c *Client) NewRead(file nfs3.Handle, b *bufpool.Buf) (*Op, error) {
	if err := checkCount(nfs3.ProcRead, len(b.B)); err != nil {
		return nil, err
	}
	o, err := c.newOp(nfs3.ProcRead, &nfs3.ReadArgs{File: file, Count: uint32(len(b.B))}, 0)
	if err != nil {
		return nil, err
	}
	o.buf, o.mem[0] = b, b.B
	o.rangeAt = o.r.ArgsAt + 4 + xdr.Round(len(file))
	o.r.Plan.Results[0].Memory = o.mem[:]
	return o, nil
}

// NewWrite makes a WRITE of b.B at offset 0, at most nfs3.MaxData bytes; SetRange moves it. b must
// be of the client's pool. The caller releases it after Free.
func (c *Client) NewWrite(file nfs3.Handle, b *bufpool.Buf, stable nfs3.Stability) (*Op, error) {
	if err := checkCount(nfs3.ProcWrite, len(b.B)); err != nil {
		return nil, err
	}
	o := &Op{buf: b}
	o.mem[0] = b.B
	args := nfs3.WriteArgs{File: file, Count: uint32(len(b.B)), Stable: stable, Data: o.mem[:]}
	if err := o.init(c, nfs3.ProcWrite, &args, 0); err != nil {
		return nil, err
	}
	o.rangeAt = o.r.ArgsAt + 4 + xdr.Round(len(file))
	return o, nil
}

func checkCount(procedure uint32, n int) error {
	if n < 1 || n > nfs3.MaxData {
		return fmt.Errorf("%s: %d bytes, must be 1 to %d", nfs3.ProcedureName(procedure), n, nfs3.MaxData)
	}
	return nil
}

func (c *Client) newOp(procedure uint32, args encoder, names int) (*Op, error) {
	o := &Op{}
	return o, o.init(c, procedure, args, names)
}

// init encodes the call. names is the number of bytes of names in args.
func (o *Op) init(c *Client, procedure uint32, args encoder, names int) (err error) {
	o.c = c
	if o.r, err = c.newRequest(procedure, args, names); err != nil {
		return fmt.Errorf("%s: %w", nfs3.ProcedureName(procedure), err)
	}
	o.wake = make(chan struct{}, 1)
	o.ended = func(*oncrpc.Request) { o.done(o) }
	return nil
}

// SetRange moves a READ or WRITE to n bytes at offset, 1 <= n <= the length of its buffer.
func (o *Op) SetRange(offset uint64, n int) {
	if n < 1 || n > len(o.buf.B) {
		panic(fmt.Sprintf("client: range of %d bytes for a buffer of %d", n, len(o.buf.B)))
	}
	o.mem[0] = o.buf.B[:n]
	at := o.r.Call.Stream[0][o.rangeAt:]
	binary.BigEndian.PutUint64(at, offset)
	binary.BigEndian.PutUint32(at[8:], uint32(n))
	if o.r.Procedure == nfs3.ProcRead {
		res := &o.r.Plan.Results[0]
		o.r.Plan.MaxReply += xdr.Round(n) - xdr.Round(res.Max)
		res.Max = n
		return
	}
	binary.BigEndian.PutUint32(at[16:], uint32(n)) // the count word of the data
	o.r.Call.Items[0].Length = n
	o.r.Eligible[0].Length = n
}

// SetName changes the name of a CREATE or REMOVE to another of the same length.
func (o *Op) SetName(name []byte) {
	if len(name) != o.nameLen {
		panic(fmt.Sprintf("client: a name of %d bytes for a call with one of %d", len(name), o.nameLen))
	}
	copy(o.r.Call.Stream[0][o.rangeAt:], name)
}

// Submit sends the call, for the first time or again; the last results become invalid. done is
// called exactly once, on any goroutine, often the receive loop of the connection: it must not
// block, and may submit o again.
func (o *Op) Submit(done func(*Op)) {
	r := o.r
	r.Reply.Release()
	r.Err = nil
	for i := range r.Plan.Results {
		r.Plan.Results[i].State = oncrpc.Absent
	}
	r.Done, o.done = o.ended, done
	oncrpc.Submit(o.c.rq, r)
}

// Start submits the call for Wait.
func (o *Op) Start() { o.Submit(wake) }

func wake(o *Op) { o.wake <- struct{}{} }

// Wait waits for the end of a call that Start sent. When ctx ends first, the call is abandoned; it
// has ended too when Wait returns.
func (o *Op) Wait(ctx context.Context) {
	select {
	case <-o.wake:
		return
	case <-ctx.Done():
	}
	if rq, ok := o.c.rq.(oncrpc.Canceler); ok {
		rq.Cancel(o.r, context.Cause(ctx))
	}
	<-o.wake
}

// Result decodes the results of a finished call. They are valid until the next Submit or Free.
func (o *Op) Result(res decoder) error {
	if err := finish(o.r.Err, o.r, res); err != nil {
		return fmt.Errorf("%s: %w", nfs3.ProcedureName(o.r.Procedure), err)
	}
	return nil
}

// Bytes returns the length of the reply's unreduced stream.
func (o *Op) Bytes() int { return o.r.Reply.Len() }

// Free releases the call. It must have ended.
func (o *Op) Free() { o.r.Free() }

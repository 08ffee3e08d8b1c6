package client

import (
	"context"
	"encoding/binary"
	"errors"
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
	c      *caller
	rq     oncrpc.Requester
	r      *oncrpc.Request
	name   string                            // of the operation
	decode func(o *Op, d *xdr.Decoder) error // sets res
	done   func(*Op)
	ended  func(*oncrpc.Request) // calls done; made once to spare Submit the allocation
	wake   chan struct{}
	res    Result

	// Of version 4: the open file of a READ or WRITE, the position of its stateid, and the results
	// that decode reads.
	file    *v4File
	stateAt int
	results results

	// Positions in the stream, for SetRange and SetName.
	offsetAt int
	countsAt [2]int // words with the number of bytes; 0 is none
	nameAt   int
	nameLen  int          // of CREATE and REMOVE
	buf      *bufpool.Buf // the caller's
	mem      [1][]byte
}

// Result is the result of an Op.
type Result struct {
	// Attr is GETATTR's.
	Attr nfs3.Attr
	// Count is the number of bytes that READ or WRITE moved.
	Count int
	// Data are READ's, in the Op's buffer if the transport placed them, else in the reply.
	Data [][]byte
	EOF  bool
	// Committed and Verf are WRITE's.
	Committed nfs3.Stability
	Verf      nfs3.Verifier
}

// init takes a sealed request of c for rq.
func (o *Op) init(c *caller, rq oncrpc.Requester, name string, r *oncrpc.Request, decode func(*Op, *xdr.Decoder) error) {
	o.c, o.rq, o.name, o.r, o.decode = c, rq, name, r, decode
	o.wake = make(chan struct{}, 1)
	o.ended = func(*oncrpc.Request) { o.done(o) }
}

// setBuf sets the memory of a READ or WRITE.
func (o *Op) setBuf(b *bufpool.Buf) error {
	if n := len(b.B); n < 1 || n > nfs3.MaxData {
		return fmt.Errorf("%d bytes, must be 1 to %d", n, nfs3.MaxData)
	}
	o.buf, o.mem[0] = b, b.B
	return nil
}

// SetRange moves a READ or WRITE to n bytes at offset, 1 <= n <= the length of its buffer.
func (o *Op) SetRange(offset uint64, n int) {
	if n < 1 || n > len(o.buf.B) {
		panic(fmt.Sprintf("client: range of %d bytes for a buffer of %d", n, len(o.buf.B)))
	}
	o.mem[0] = o.buf.B[:n]
	call := o.r.Call.Stream[0]
	binary.BigEndian.PutUint64(call[o.offsetAt:], offset)
	for _, at := range o.countsAt {
		if at != 0 {
			binary.BigEndian.PutUint32(call[at:], uint32(n))
		}
	}
	if len(o.r.Plan.Results) > 0 { // READ
		res := &o.r.Plan.Results[0]
		o.r.Plan.MaxReply += xdr.Round(n) - xdr.Round(res.Max)
		res.Max = n
		return
	}
	o.r.Call.Items[0].Length = n
	o.r.Eligible[0].Length = n
}

// SetName changes the name of a CREATE or REMOVE to another of the same length.
func (o *Op) SetName(name []byte) {
	if len(name) != o.nameLen {
		panic(fmt.Sprintf("client: a name of %d bytes for a call with one of %d", len(name), o.nameLen))
	}
	copy(o.r.Call.Stream[0][o.nameAt:], name)
}

// Submit sends the call, for the first time or again; the last result becomes invalid. done is
// called exactly once, on any goroutine, often the receive loop of the connection: it must not
// block, and may submit o again.
func (o *Op) Submit(done func(*Op)) {
	r := o.r
	r.Reply.Release()
	r.Err = nil
	for i := range r.Plan.Results {
		r.Plan.Results[i].State = oncrpc.Absent
	}
	if o.file != nil {
		o.file.stamp(r.Call.Stream[0][o.stateAt:])
	}
	r.Done, o.done = o.ended, done
	oncrpc.Submit(o.rq, r)
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
	if rq, ok := o.rq.(oncrpc.Canceler); ok {
		rq.Cancel(o.r, context.Cause(ctx))
	}
	<-o.wake
}

// Result returns the result of a finished call. It is valid until the next Submit or Free. A status
// other than OK is an error.
func (o *Op) Result() (*Result, error) {
	err := o.r.Err
	if err == nil {
		var d *xdr.Decoder
		if d, err = o.r.Results(); err == nil {
			if err = o.decode(o, d); d.Err() != nil {
				err = d.Err()
			}
		}
	}
	if err != nil && !errors.As(err, new(*compoundError)) {
		err = fmt.Errorf("%s: %w", o.name, err)
	}
	if err != nil {
		return nil, err
	}
	return &o.res, nil
}

// Await waits as Wait and returns the result. It repeats the call while the server asks for it, and
// when the server has lost the open file.
func (o *Op) Await(ctx context.Context) (*Result, error) {
	for p, revivals := (patience{onDelay: o.c.onDelay}), 0; ; {
		o.Wait(ctx)
		res, err := o.Result()
		switch {
		case err == nil || p.again(ctx, err):
		case o.file == nil || revivals == maxRevivals || !o.file.revive(ctx, stamped(o.r.Call.Stream[0][o.stateAt:]), err):
			return nil, err
		default:
			revivals++
		}
		if err == nil {
			return res, nil
		}
		o.Start()
	}
}

// maxRevivals bounds the attempts to open a file anew for one call.
const maxRevivals = 8

// setRead sets the result of a READ.
func (o *Op) setRead(count int, eof bool, data [][]byte) error {
	if n := len(o.mem[0]); count > n {
		return fmt.Errorf("the server returned %d of %d bytes", count, n)
	}
	o.res.Count, o.res.EOF, o.res.Data = count, eof, data
	return nil
}

// setWrite sets the result of a WRITE.
func (o *Op) setWrite(count uint32, committed nfs3.Stability, verf nfs3.Verifier) error {
	if n := len(o.mem[0]); count == 0 || int64(count) > int64(n) {
		return fmt.Errorf("the server wrote %d of %d bytes", count, n)
	}
	o.res.Count, o.res.Committed, o.res.Verf = int(count), committed, verf
	return nil
}

// Bytes returns the length of the reply's unreduced stream.
func (o *Op) Bytes() int { return o.r.Reply.Len() }

// Free releases the call. It must have ended.
func (o *Op) Free() { o.r.Free() }

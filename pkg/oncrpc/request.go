package oncrpc

import (
	"context"
	"fmt"
	"sync"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/xdr"
)

// Canceler is a [Requester] that can give up a request. Every requester should be one.
type Canceler interface {
	// Cancel makes r fail with cause as soon as its memory is no longer needed; r.Done is called as
	// ever. Where a peer may reach the memory of r by RDMA, that may take 2 s. A later reply is
	// ignored. Cancel does nothing if r is done or was never submitted here. r must not be freed
	// meanwhile.
	Cancel(r *Request, cause error)
}

// requestPrivate is the part of a Request that belongs to its own methods.
type requestPrivate struct {
	enc      xdr.Encoder
	dec      xdr.Decoder
	header   ReplyHeader
	building bool
	finished chan struct{} // while Do waits
	linkState
}

var requests = sync.Pool{New: func() any { return new(Request) }}

// NewRequest takes a Request, a freed one if there is any, and begins its call: the encoder stands
// at the first byte of the parameters. size bounds the reduced call stream in bytes, header
// included. Its memory comes from pool. Items are taken out by the encoder's Bulk and stay in the
// requester's memory. Seal ends the call, Do or Submit sends it, and Free gives everything back.
func NewRequest(pool *bufpool.Pool, program, version, procedure uint32, cred Auth, size int) (*Request, *xdr.Encoder, error) {
	if len(cred.Body) > MaxAuthLen {
		return nil, nil, fmt.Errorf("oncrpc: credential has %d bytes, at most %d are allowed", len(cred.Body), MaxAuthLen)
	}
	size = max(size, MinCallLen+xdr.Round(len(cred.Body)))
	buf, err := pool.Get(size)
	if err != nil {
		return nil, nil, err
	}
	r := requests.Get().(*Request)
	r.Call.Own(buf)
	r.Program, r.Version, r.Procedure = program, version, procedure
	r.enc.Reset(buf.B[:0:size], r.Call.Items)
	EncodeCallHeader(&r.enc, 0, program, version, procedure, cred, Auth{})
	r.ArgsAt = r.enc.Pos()
	r.building = true
	return r, &r.enc, nil
}

// Seal ends the call that NewRequest began. Every item becomes an eligible argument, unless
// Eligible is set. It returns an error if the call did not fit.
func (r *Request) Seal() error {
	if !r.building {
		return nil
	}
	r.building = false
	if r.enc.Overflow() {
		return fmt.Errorf("oncrpc: program %d procedure %d: the call's stream needs more than the %d bytes planned for it", r.Program, r.Procedure, len(r.enc.Bytes())+r.enc.Room())
	}
	r.Call.Stream = append(r.Call.Stream[:0], r.enc.Bytes())
	r.Call.Items = r.enc.Items()
	if len(r.Eligible) == 0 {
		for _, it := range r.Call.Items {
			r.Eligible = append(r.Eligible, Argument{it.Position, it.Length})
		}
	}
	return nil
}

// SetXID writes the XID into the request and its sealed call.
func (r *Request) SetXID(xid uint32) {
	r.XID = xid
	r.Call.SetXID(xid)
}

// Submit gives r an XID of rq and submits it. Seal must have succeeded and r.Done be set.
func Submit(rq Requester, r *Request) {
	r.SetXID(rq.NextXID())
	rq.Submit(r)
}

// Do seals r, sends it and waits until it is done. It returns r.Err; [Request.Results] has the
// server's reply. When ctx ends first, the request is cancelled and fails with ctx's error. A
// requester that is no [Canceler] cannot cancel: Do waits for it.
func Do(ctx context.Context, rq Requester, r *Request) error {
	if err := r.Seal(); err != nil {
		return err
	}
	w := waitersOf(rq)
	finished := w.take()
	r.finished, r.Done = finished, signalFinished
	Submit(rq, r)
	select {
	case <-finished:
	case <-ctx.Done():
		if c, ok := rq.(Canceler); ok {
			c.Cancel(r, context.Cause(ctx))
		}
		<-finished
	}
	r.finished = nil
	w.put(finished)
	return r.Err
}

func signalFinished(r *Request) { r.finished <- struct{}{} }

// Results checks the reply's header of a request that is done, and returns a decoder that stands at
// the first byte of the results. The error is r.Err, a [*StatusError], or describes the fault in
// the header.
func (r *Request) Results() (*xdr.Decoder, error) {
	if r.Err != nil {
		return nil, r.Err
	}
	r.dec.Reset(r.Reply.Stream, r.Reply.Items)
	if err := r.header.Decode(&r.dec); err != nil {
		return nil, err
	}
	if r.header.XID != r.XID {
		return nil, fmt.Errorf("oncrpc: reply has XID %#x, the call's is %#x", r.header.XID, r.XID)
	}
	if !r.header.Status.OK() {
		return nil, &StatusError{r.Program, r.Version, r.Procedure, r.header.Status}
	}
	return &r.dec, nil
}

// Header returns the reply's header, after Results.
func (r *Request) Header() *ReplyHeader { return &r.header }

// Free releases call and reply, and gives r back for a later NewRequest. The request must be done,
// or never submitted.
func (r *Request) Free() {
	r.Call.Release()
	r.Reply.Release()
	r.Plan.Reset()
	r.XID, r.Program, r.Version, r.Procedure, r.ArgsAt = 0, 0, 0, 0, 0
	r.Eligible, r.Err, r.Done, r.Transport = r.Eligible[:0], nil, nil, nil
	r.enc, r.dec, r.header, r.building = xdr.Encoder{}, xdr.Decoder{}, ReplyHeader{}, false
	r.linkState = linkState{}
	requests.Put(r)
}

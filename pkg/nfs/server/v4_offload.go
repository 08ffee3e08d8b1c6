package server

import (
	"slices"
	"sync"

	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/nfs/nfs4/state"
	"sluice.dev/sluice/pkg/nfs/vfs"
	"sluice.dev/sluice/pkg/xdr"
)

// offload is a copy that goes on after the reply to its COPY (RFC 7862 section 4.8).
type offload struct {
	v              *v4Server
	src, dst       *vfs.Node
	srcOff, dstOff uint64
	count          uint64
	cred           vfs.Cred
	client         *state.Client
	handle         []byte // of dst
	state          *state.Offload
	id             nfs4.StateID
	verf           nfs4.Verifier

	mu        sync.Mutex
	done      uint64
	status    nfs4.Status
	complete  bool
	cancelled bool
}

// startOffload copies from the saved file to the current one, and calls the client back at the end;
// false if it cannot.
func (c *compound) startOffload(a *nfs4.CopyArgs, count uint64, res *nfs4.CopyRes) bool {
	v := c.s.v4
	o := &offload{
		v: v, src: c.saved, dst: c.cur, srcOff: a.SrcOffset, dstOff: a.DstOffset, count: count, client: c.client,
		cred:   vfs.Cred{UID: c.cred.UID, GID: c.cred.GID, Groups: slices.Clone(c.cred.Groups)},
		handle: slices.Clone(c.cur.Handle().Bytes()), verf: verifier4(c.s.fs.Verifier()),
	}
	var ok bool
	if o.state, o.id, ok = v.state.BeginOffload(c.client, c.file(), o); !ok {
		return false
	}
	if !v.callbacks.enter() { // the server closes
		v.state.EndOffload(o.state)
		return false
	}
	o.src.Acquire()
	o.dst.Acquire()
	go o.run()
	res.Response.HasCallback, res.Response.Callback = true, o.id
	res.Requirements.Synchronous = false
	return true
}

func (o *offload) run() {
	defer o.v.callbacks.running.Done()
	var w vfs.Wcc
	status := nfs4.OK
	for done := uint64(0); done < o.count && !o.stopped(); {
		w = vfs.Wcc{}
		n, err := o.v.s.fs.Copy(o.src, o.srcOff+done, o.dst, o.dstOff+done, o.count-done, &o.cred, &w)
		if status = status4(err); err != nil || n == 0 {
			break
		}
		done += n
		o.mu.Lock()
		o.done = done
		o.mu.Unlock()
	}
	o.src.Release()
	o.dst.Release()
	o.mu.Lock()
	o.complete, o.status = true, status
	cancelled := o.cancelled
	o.mu.Unlock()
	if cancelled {
		return
	}
	o.v.callbacks.send(&callback{
		client: o.client, op: nfs4.OpCBOffload, size: 64 + nfs4.MaxHandle + 64,
		encode: func(e *xdr.Encoder) bool {
			a := nfs4.CBOffloadArgs{Object: o.handle, StateID: o.id, Status: status, Count: o.done}
			a.Response = nfs4.WriteResponse{Count: o.done, Verf: o.verf}
			a.Encode(e)
			return true
		},
		done: func(nfs4.Status, *xdr.Decoder, bool) { o.v.state.EndOffload(o.state) },
	})
}

func (o *offload) stopped() bool {
	select {
	case <-o.v.stop:
		return true
	default:
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.cancelled
}

// Close cancels the copy.
func (o *offload) Close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.cancelled = true
}

// offloadOf returns the copy to the current file with the stateid in the arguments.
func (c *compound) offloadOf() (*offload, nfs4.Status) {
	var a nfs4.OffloadStatusArgs
	if a.Decode(c.d); c.d.Err() != nil {
		return nil, nfs4.ErrBadXDR
	}
	if st := c.resolveState(&a.StateID); st != nfs4.OK {
		return nil, st
	}
	f := c.file()
	o, st := c.s.v4.state.Offload(c.client, &a.StateID, &f)
	if st != nfs4.OK {
		return nil, st
	}
	return o.Job.(*offload), nfs4.OK
}

// offloadStatus is OFFLOAD_STATUS (RFC 7862 section 15.9).
func (c *compound) offloadStatus() nfs4.Status {
	o, st := c.offloadOf()
	if st != nfs4.OK {
		return st
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	res := nfs4.OffloadStatusRes{Count: o.done, Complete: o.complete, Status: o.status}
	res.Encode(c.e)
	return nfs4.OK
}

// offloadCancel is OFFLOAD_CANCEL (RFC 7862 section 15.8). No CB_OFFLOAD follows.
func (c *compound) offloadCancel() nfs4.Status {
	o, st := c.offloadOf()
	if st != nfs4.OK {
		return st
	}
	o.Close()
	c.s.v4.state.EndOffload(o.state)
	return nfs4.OK
}

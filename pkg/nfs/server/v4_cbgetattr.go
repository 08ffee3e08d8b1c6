package server

import (
	"sync"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/nfs/nfs4/state"
	"sluice.dev/sluice/pkg/nfs/vfs"
	"sluice.dev/sluice/pkg/xdr"
)

// heldAttrs are the attributes that the holder of a delegation for writing may know better than the
// server.
var heldAttrs = nfs4.BitmapOf(
	nfs4.AttrChange, nfs4.AttrSize, nfs4.AttrSpaceUsed, nfs4.AttrTimeMetadata, nfs4.AttrTimeModify,
)

// holderQuery asks the holder of a delegation for a file's attributes (CB_GETATTR, RFC 8881 section
// 20.1), for an operation of another client.
type holderQuery struct {
	index    uint32 // of the operation
	d        *state.Delegation
	mu       sync.Mutex
	answered bool
	modified bool
	size     uint64
}

// statFor fills in c.stat for attributes of the current object.
func (c *compound) statFor(mask nfs4.Bitmap) nfs4.Status { return c.statOf(c.cur, mask, &c.stat) }

// statOf fills in out for attributes of n. If another client has a delegation for writing, it asks
// that client first, and recalls the delegation if there is no answer.
func (c *compound) statOf(n *vfs.Node, mask nfs4.Bitmap, out *vfs.Stat) nfs4.Status {
	var q *holderQuery
	if c.s.v4.state.Delegated() && mask.And(heldAttrs) != (nfs4.Bitmap{}) && n.Kind() == unix.S_IFREG {
		var st nfs4.Status
		if q, st = c.askHolder(n); st != nfs4.OK {
			return st
		}
	}
	if q != nil && q.modified {
		// Times follow the data of the holder (RFC 8881 section 10.4.3).
		now := vfs.Attrs{SetMtime: true, Mtime: unix.Timespec{Nsec: unix.UTIME_NOW}}
		c.wcc = vfs.Wcc{}
		if err := c.s.fs.SetAttr(n, &now, &vfs.Cred{}, nil, &c.wcc); err != nil {
			return status4(err)
		}
	}
	if err := n.Stat(out); err != nil {
		return status4(err)
	}
	if q != nil && q.modified {
		out.Size = int64(q.size)
	}
	return nfs4.OK
}

// askHolder returns the answer of the holder of a delegation of n for writing, nil without one.
func (c *compound) askHolder(n *vfs.Node) (*holderQuery, nfs4.Status) {
	v := c.s.v4
	f := state.FileID(n.Key())
	d := v.state.HeldForWriting(&f, c.client)
	if d == nil {
		return nil, nfs4.OK
	}
	q := c.query
	switch {
	case q == nil || q.index != c.index || q.d != d:
		if !c.patience.begin() {
			return nil, c.conflict(n, state.UseRead)
		}
		c.query = &holderQuery{index: c.index, d: d}
		c.waitFor, c.ask = f, c.query
		return nil, wait
	case !q.hasAnswer():
		return nil, c.conflict(n, state.UseRead)
	}
	return q, nfs4.OK
}

func (q *holderQuery) hasAnswer() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.answered
}

// send sends the query. Calls that wait for f go on when the answer is there.
func (q *holderQuery) send(v *v4Server, f state.FileID) {
	v.callbacks.send(&callback{
		client: q.d.Client(), op: nfs4.OpCBGetAttr, size: 64 + nfs4.MaxHandle,
		encode: func(e *xdr.Encoder) bool {
			a := nfs4.CBGetAttrArgs{Object: q.d.Handle(), Request: nfs4.BitmapOf(nfs4.AttrChange, nfs4.AttrSize)}
			a.Encode(e)
			_, needed := v.state.RecallOf(q.d)
			return needed
		},
		done: func(st nfs4.Status, results *xdr.Decoder, gone bool) {
			if !gone && st == nfs4.OK {
				q.answer(results)
			}
			v.unparkAll(f)
		},
	})
}

// answer takes over change and size. The holder has modified the file if its change attribute is
// not that from the grant.
func (q *holderQuery) answer(d *xdr.Decoder) {
	var res nfs4.CBGetAttrRes
	res.Decode(d)
	if d.Err() != nil || res.Attrs.Mask != nfs4.BitmapOf(nfs4.AttrChange, nfs4.AttrSize) {
		return
	}
	var values xdr.Decoder
	values.ResetBytes(res.Attrs.Values)
	change, size := values.Uint64(), values.Uint64()
	if values.Err() != nil || values.Left() > 0 || size > 1<<63-1 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.answered, q.modified, q.size = true, change != q.d.Change(), size
}

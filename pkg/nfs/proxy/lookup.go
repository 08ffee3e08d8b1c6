package proxy

import (
	"bytes"
	"fmt"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/proxy/upstream"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

// maxLookup bounds the results of LOOKUP and GETATTR: a handle, and the attributes of two objects.
const maxLookup = 256

// walk is the way of a MNT of a path beneath the root.
type walk struct {
	at    nfs3.Handle // where it has come
	names int         // of the path that have been looked up
}

// resolve answers a MNT of a path beneath the root, by one LOOKUP for each name: the backend's own MOUNT would follow symbolic links, also
// those that lead out of the export.
func (f *flight) resolve() {
	f.walk = walk{at: f.s.export.Roots.Load().V3}
	f.step()
}

// step sends the next LOOKUP in place of the MNT: by its client's connection to the backend, with its XID, which the client uses for nothing else as long
// as the MNT is not answered. Behind the last one comes a GETATTR.
func (f *flight) step() {
	r, c, w := &f.req, f.call, &f.walk
	r.Reset()
	r.XID, r.Program, r.Version, r.Procedure = c.XID, nfs3.Program, nfs3.Version, nfs3.ProcGetAttr
	var name []byte
	if w.names < len(f.rw.Path) {
		r.Procedure, name = nfs3.ProcLookup, f.rw.Path[w.names]
	}
	cred, err := f.rw.Cred(c)
	if err != nil {
		f.fail("a MNT cannot be resolved", err)
		return
	}
	buf, err := c.Pool().Get(oncrpc.MinCallLen + xdr.Round(len(cred.Body)) + 4 + nfs3.HandleLen + 4 + xdr.Round(len(name)))
	if err != nil {
		f.fail("a MNT cannot be resolved", err)
		return
	}
	r.Call.Own(buf)
	var e xdr.Encoder
	e.Reset(buf.B[:0], nil)
	oncrpc.EncodeCallHeader(&e, r.XID, r.Program, r.Version, r.Procedure, cred, oncrpc.Auth{})
	r.ArgsAt = e.Pos()
	w.at.Encode(&e)
	if r.Procedure == nfs3.ProcLookup {
		e.Opaque(name)
	}
	r.Call.Stream = append(r.Call.Stream, e.Bytes())
	r.Plan.MaxReply = oncrpc.MinReplyLen + oncrpc.MaxAuthLen + maxLookup
	r.Finished = f.stepped // neither call is one that the backend has to know again
	f.peer.link.Submit(r)
}

// stepped takes the reply to what step has sent.
func (f *flight) stepped(r *upstream.Request) {
	r.Call.Release()
	status, err := f.walk.read(r)
	r.Reply.Release()
	switch {
	case err != nil:
		f.fail("a path could not be looked up for MNT", err)
		return
	case status == nfs3.OK && r.Procedure == nfs3.ProcLookup:
		f.step()
		return
	}
	if err := f.rw.Mounted(f.call, f.walk.at, status); err != nil {
		f.fail("a MNT cannot be answered", err)
		return
	}
	f.call.Respond()
}

// read goes on by what the reply says.
func (w *walk) read(r *upstream.Request) (status nfs3.Status, err error) {
	d, err := r.Results()
	if err != nil {
		return 0, err
	}
	if r.Procedure == nfs3.ProcLookup {
		var res nfs3.LookupRes
		res.Decode(d)
		w.at = bytes.Clone(res.Object)
		w.names++
		status = res.Status
	} else {
		var res nfs3.GetAttrRes
		res.Decode(d)
		if status = res.Status; status == nfs3.OK && res.Attr.Type != nfs3.Dir {
			status = nfs3.ErrNotDir
		}
	}
	if err := d.Err(); err != nil {
		return 0, fmt.Errorf("%s: %w", nfs3.ProcedureName(r.Procedure), err)
	}
	return status, nil
}

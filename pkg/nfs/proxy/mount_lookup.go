package proxy

import (
	"bytes"
	"fmt"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/proxy/upstream"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

// maxLookup bounds the results of LOOKUP and GETATTR: a handle and two sets of attributes.
const maxLookup = 256

// mountLookup is the state of a MNT of a path beneath the root.
type mountLookup struct {
	dir   nfs3.Handle // directory reached
	found int         // number of names looked up
}

// resolveMount answers a MNT of a path beneath the root with one LOOKUP for each name. The
// backend's MOUNT would follow symbolic links, even out of the export.
func (f *forwardedCall) resolveMount() {
	f.mount = mountLookup{dir: f.s.export.Roots.Load().V3}
	f.sendLookup()
}

// sendLookup sends the next LOOKUP, or the final GETATTR, in place of the MNT: on its client's link
// and with its XID, which the client does not reuse before the MNT is answered.
func (f *forwardedCall) sendLookup() {
	r, c, w := &f.req, f.call, &f.mount
	r.Reset()
	r.XID, r.Program, r.Version, r.Procedure = c.XID, nfs3.Program, nfs3.Version, nfs3.ProcGetAttr
	var name []byte
	if w.found < len(f.rw.Path) {
		r.Procedure, name = nfs3.ProcLookup, f.rw.Path[w.found]
	}
	cred, err := f.rw.Cred(c)
	if err != nil {
		f.abandon("resolve MNT failed", err)
		return
	}
	buf, err := c.Pool().Get(oncrpc.MinCallLen + xdr.Round(len(cred.Body)) + 4 + nfs3.HandleLen + 4 + xdr.Round(len(name)))
	if err != nil {
		f.abandon("resolve MNT failed", err)
		return
	}
	r.Call.Own(buf)
	var e xdr.Encoder
	e.Reset(buf.B[:0], nil)
	oncrpc.EncodeCallHeader(&e, r.XID, r.Program, r.Version, r.Procedure, cred, oncrpc.Auth{})
	r.ArgsAt = e.Pos()
	w.dir.Encode(&e)
	if r.Procedure == nfs3.ProcLookup {
		e.Opaque(name)
	}
	r.Call.Stream = append(r.Call.Stream, e.Bytes())
	r.Plan.MaxReply = oncrpc.MinReplyLen + oncrpc.MaxAuthLen + maxLookup
	r.Finished = f.onLookupReply // replays of both are harmless
	c.Reach(oncrpc.Forwarded)
	f.client.link.Submit(r)
}

// onLookupReply handles the reply to sendLookup's call.
func (f *forwardedCall) onLookupReply(r *upstream.Request) {
	r.Call.Release()
	f.call.Reach(oncrpc.Serving)
	status, err := f.mount.advance(r)
	r.Reply.Release()
	switch {
	case err != nil:
		f.abandon("look up path of MNT failed", err)
		return
	case status == nfs3.OK && r.Procedure == nfs3.ProcLookup:
		f.sendLookup()
		return
	}
	if err := f.rw.AnswerMount(f.call, f.mount.dir, status); err != nil {
		f.abandon("answer MNT failed", err)
		return
	}
	f.call.Respond()
}

// advance applies the reply.
func (w *mountLookup) advance(r *upstream.Request) (status nfs3.Status, err error) {
	d, err := r.Results()
	if err != nil {
		return 0, err
	}
	if r.Procedure == nfs3.ProcLookup {
		var res nfs3.LookupRes
		res.Decode(d)
		w.dir = bytes.Clone(res.Object)
		w.found++
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

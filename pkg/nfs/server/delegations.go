package server

import (
	"time"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/nfs/nfs4/state"
	"sluice.dev/sluice/pkg/nfs/vfs"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

// Calls of version 3 that conflict with delegations of version 4. They wait for the return of the
// delegations, and get NFS3ERR_JUKEBOX if that takes too long.

// recalling describes how a procedure conflicts with delegations.
type recalling struct {
	use state.Use
	// object: of the object of the first argument. names: of the objects of this number of names.
	object bool
	names  int
	// failure is the length of the results behind the status of an error.
	failure int
}

var recallings = [nfs3.Procedures]*recalling{
	nfs3.ProcGetAttr: {use: state.UseRead, object: true},
	nfs3.ProcRead:    {use: state.UseRead, object: true, failure: 4},
	nfs3.ProcWrite:   {use: state.UseChange, object: true, failure: 8},
	nfs3.ProcSetAttr: {use: state.UseChange, object: true, failure: 8},
	nfs3.ProcLink:    {use: state.UseChange, object: true, failure: 12},
	nfs3.ProcCreate:  {use: state.UseChange, names: 1, failure: 8},
	nfs3.ProcRemove:  {use: state.UseChange, names: 1, failure: 8},
	nfs3.ProcRename:  {use: state.UseChange, names: 2, failure: 16},
}

// delegated reports whether there are delegations of version 4.
func (s *Server) delegated() bool { return s.v4 != nil && s.v4.state.Delegated() }

// undisturbed reports, on the receive loop, that the call conflicts with no delegation. Then it
// keeps its object in use, so that none is granted until the call ends.
func (o *op) undisturbed(k *recalling) bool {
	if !k.object {
		return false
	}
	var h nfs3.Handle
	d := o.call.Args()
	if h.Decode(d); d.Err() != nil {
		return false
	}
	n := o.cachedNode(h)
	if n == nil {
		return false
	}
	o.held[0] = n
	f := state.FileID(n.Key())
	return o.s.v4.state.Conflict(&f, nil, k.use, time.Now()) == nfs4.OK
}

// disturb recalls the delegations that the call conflicts with, and runs it when there are none.
func (o *op) disturb() {
	k := o.recalls
	o.release()
	f, conflict := o.recall(k)
	o.s.v4.settle()
	switch {
	case !conflict:
		o.run = o.procedure.run
		o.run(o)
	case o.patience.begin():
		o.call.Reach(oncrpc.Queued)
		o.s.v4.park(f, &o.task, o.patience.until)
	default:
		o.release()
		if e := o.begin(4 + k.failure); e != nil {
			e.Uint32(uint32(nfs3.ErrJukebox))
			clear(e.Grow(k.failure))
			o.respond()
		}
	}
}

// recall recalls the delegations of the objects of the call, and keeps the objects in use. It
// returns a file that is still delegated.
func (o *op) recall(k *recalling) (f state.FileID, conflict bool) {
	d := o.call.Args()
	if k.object {
		var h nfs3.Handle
		if h.Decode(d); d.Err() == nil {
			o.held[0], _ = o.s.fs.Resolve(h) // the call itself finds the error
		}
	}
	for i := range k.names {
		o.held[i] = o.target(d)
	}
	for _, n := range o.held {
		if n == nil {
			continue
		}
		if f = n.Key(); o.s.v4.state.Conflict(&f, nil, k.use, time.Now()) != nfs4.OK {
			return f, true
		}
	}
	return f, false
}

// target returns the object of a directory and a name in the arguments, nil without one.
func (o *op) target(d *xdr.Decoder) *vfs.Node {
	var a nfs3.DirOpArgs
	if a.Decode(d); d.Err() != nil || o.name.Set(a.Name) != nil {
		return nil
	}
	dir, err := o.s.fs.Resolve(a.Dir)
	if err != nil {
		return nil
	}
	defer dir.Release()
	if !dir.IsDir() {
		return nil
	}
	n, err := o.s.fs.Lookup(dir, &o.name, &o.cred)
	if err != nil {
		return nil
	}
	return n
}

// release ends the use of the objects that recall found.
func (o *op) release() {
	for i, n := range o.held {
		if n != nil {
			n.Release()
			o.held[i] = nil
		}
	}
}

// private reports whether a client of version 4 may know newer attributes of a file, since it has a
// delegation for writing. Replies of version 3 omit them where they may.
func (s *Server) private(key state.FileID) bool {
	return s.delegated() && s.v4.state.DelegatedForWriting(&key)
}

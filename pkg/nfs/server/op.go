package server

import (
	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/vfs"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

// op is a call in progress. It stays with the oncrpc.Call as its Scratch, so the next call
// allocates nothing.
type op struct {
	s    *Server
	call *oncrpc.Call
	run  func(*op)
	task task
	// procedure and recalls are the call's.
	procedure *procedure
	recalls   *recalling
	next      *op // among the calls that wait for a reply

	caller
	held     [2]*vfs.Node // see undisturbed and recall
	patience patience

	cached   *cachedReply // the place of the reply; nil if it is not kept
	repeated bool         // an earlier process started the call; see cachedReply.target
	now      target       // the object that the call is about to change, as found by intend
	record   slotBuf

	name, name2 vfs.Name
	stat        vfs.Stat
	wcc, wcc2   vfs.Wcc
	writeArgs   nfs3.WriteArgs
	write       vfs.Write
	symlinkArgs nfs3.SymlinkArgs

	// A READ started on the receive loop: got bytes are in buf.
	buf  *bufpool.Buf
	got  int
	data [1][]byte
}

// opOf returns the op of a new call.
func (s *Server) opOf(c *oncrpc.Call) *op {
	o, ok := c.Scratch.(*op)
	if !ok {
		o = &op{}
		o.task.run, o.task.drop = o.work, o.drop
		c.Scratch = o
	}
	o.s, o.call, o.cached, o.repeated = s, c, nil, false
	o.data[0] = nil
	o.patience = patience{}
	return o
}

// submit hands the call to a worker, which runs o.run.
func (o *op) submit() {
	o.call.Reach(oncrpc.Queued)
	o.s.workers.submit(&o.task)
}

// work runs the call, on a worker.
func (o *op) work() {
	o.call.Reach(oncrpc.Working)
	o.run(o)
}

// begin starts a reply with results of at most size bytes. It precedes all effects, so that they
// can be reported. nil: memory ran out and the call was dropped; the client finds its connection
// closed and sends the call again.
func (o *op) begin(size int) *xdr.Encoder {
	e, err := o.call.BeginReply(oncrpc.MinReplyLen + size)
	if err != nil {
		o.s.log.Warn("call dropped: no memory for its reply", "error", err)
		o.drop()
		return nil
	}
	return e
}

// decoded reports whether the arguments are well-formed. If not, it has answered GARBAGE_ARGS.
func (o *op) decoded(d *xdr.Decoder) bool {
	if d.Err() == nil {
		return true
	}
	o.s.log.Debug("garbage arguments", "peer", o.call.Conn.Remote, "procedure", nfs3.ProcedureName(o.call.Procedure), "error", d.Err())
	o.end()
	o.call.ReplyAccept(oncrpc.GarbageArgs)
	return false
}

// respond sends the encoded reply.
func (o *op) respond() {
	if o.cached != nil {
		if o.call.EndReply(); o.call.Status.OK() {
			o.s.replies.finish(o.cached, o.call, &o.record)
			o.cached = nil
		}
	}
	o.end()
	o.call.Respond()
}

func (o *op) drop() {
	o.end()
	o.call.Drop()
}

// end releases the call's memory. Without a kept reply the call may run again.
func (o *op) end() {
	if o.cached != nil {
		o.s.replies.forget(o.cached)
		o.cached = nil
	}
	if o.buf != nil {
		o.buf.Release()
		o.buf = nil
	}
	o.got = 0
	o.release()
	o.cred = vfs.Cred{}
	clear(o.writeArgs.Data)
	o.writeArgs.File = nil
	clear(o.symlinkArgs.Path)
	o.symlinkArgs.Where = nfs3.DirOpArgs{}
}

// node returns the object of a handle, on the receive loop, with its attributes in o.stat; nil if
// that would wait or fail.
func (o *op) node(h nfs3.Handle) *vfs.Node {
	n := o.cachedNode(h)
	if n == nil {
		return nil
	}
	if !o.s.batchOf(o.call.Conn).stat(n, &o.stat) {
		n.Release()
		return nil
	}
	return n
}

// cachedNode is node without attributes.
func (o *op) cachedNode(h nfs3.Handle) *vfs.Node {
	n, err := o.s.fs.Cached(h)
	if err != nil || n == nil {
		return nil
	}
	if !o.s.fs.Fresh(n) {
		n.Release()
		return nil
	}
	return n
}

// resolve returns the object of a handle and puts its attributes into o.stat. It may wait.
func (o *op) resolve(h nfs3.Handle) (*vfs.Node, nfs3.Status) {
	n, err := o.s.fs.Resolve(h)
	if err != nil {
		return nil, status(err)
	}
	if err := n.Stat(&o.stat); err != nil {
		n.Release()
		return nil, status(err)
	}
	return n, nfs3.OK
}

// writable is resolve for procedures that change something.
func (o *op) writable(h nfs3.Handle) (*vfs.Node, nfs3.Status) {
	n, st := o.resolve(h)
	if st == nfs3.OK && o.readOnly {
		n.Release()
		return nil, nfs3.ErrROFS
	}
	return n, st
}

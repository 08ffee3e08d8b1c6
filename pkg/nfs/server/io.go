package server

import (
	"encoding/binary"
	"math"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/vfs"
	"sluice.dev/sluice/pkg/xdr"
)

const readLen = 4 + nfs3.PostOpAttrLen + 4 + 4 + 4

// mayRead reports whether permissions allow reading a file. The owner always may, and so may
// whoever can execute it, since a client pages programs in by READ (RFC 1813 section 4.4).
func mayRead(o *op, may uint32) bool {
	return may&(vfs.MayRead|vfs.MayExec) != 0 || o.s.fs.Owns(&o.stat, &o.cred)
}

// span returns how many bytes of the file a READ covers.
func span(st *vfs.Stat, a *nfs3.ReadArgs) int {
	if a.Offset >= uint64(st.Size) {
		return 0
	}
	return int(min(uint64(min(a.Count, nfs3.MaxData)), uint64(st.Size)-a.Offset))
}

func readNonblocking(o *op) bool {
	var a nfs3.ReadArgs
	d := o.call.Args()
	if a.Decode(d); d.Err() != nil {
		return false
	}
	n := o.node(a.File)
	if n == nil {
		return false
	}
	defer n.Release()
	size := span(&o.stat, &a)
	if n.Kind() != unix.S_IFREG || size > o.s.cfg.InlineRead {
		return false
	}
	may, known := o.s.fs.Permit(n, &o.stat, &o.cred, vfs.MayRead|vfs.MayExec)
	if !known || !mayRead(o, may) {
		return false
	}
	if size > 0 {
		buf, err := o.call.Pool().Get(size)
		if err != nil {
			return false
		}
		o.buf = buf
		if o.got, err = o.s.fs.ReadNow(n, buf.B, int64(a.Offset)); err != nil {
			return false // the worker continues from here
		}
		// The attributes are from before the read: a client takes no older data for newer ones. A
		// shorter file has other attributes by now.
		if o.got < size && n.Stat(&o.stat) != nil {
			return false
		}
	}
	if e := o.begin(readLen); e != nil {
		o.answerRead(e, &a)
	}
	return true
}

// answerRead sends the bytes in o.buf, with the attributes in o.stat.
func (o *op) answerRead(e *xdr.Encoder, a *nfs3.ReadArgs) {
	r := nfs3.ReadRes{Count: uint32(o.got), EOF: a.Offset >= uint64(o.stat.Size) || a.Offset+uint64(o.got) >= uint64(o.stat.Size)}
	if o.got == 0 && a.Count > 0 {
		r.EOF = true // true at the time of the read, though the file may have grown
	}
	o.s.post(&o.stat, &r.Attr)
	if o.got > 0 {
		o.data[0] = o.buf.B[:o.got]
		r.Data = o.data[:]
		o.call.Reply.Own(o.buf)
		o.buf = nil
	}
	r.Encode(e)
	o.respond()
}

func read(o *op) {
	e := o.begin(readLen)
	if e == nil {
		return
	}
	var a nfs3.ReadArgs
	d := o.call.Args()
	if a.Decode(d); !o.decoded(d) {
		return
	}
	var r nfs3.ReadRes
	n, st := o.resolve(a.File)
	if r.Status = st; st == nfs3.OK {
		r.Status = status(o.read(n, &a))
		if r.Status == nfs3.OK {
			r.Status = status(n.Stat(&o.stat))
		}
		n.Release()
		if r.Status == nfs3.OK {
			o.answerRead(e, &a)
			return
		}
		o.s.post(&o.stat, &r.Attr)
	}
	r.Encode(e)
	o.respond()
}

// read fills o.buf, which may hold o.got bytes already.
func (o *op) read(n *vfs.Node, a *nfs3.ReadArgs) error {
	if n.Kind() != unix.S_IFREG {
		return unix.EINVAL
	}
	may, err := o.s.fs.PermitBlocking(n, &o.stat, &o.cred, vfs.MayRead|vfs.MayExec)
	if err != nil {
		return err
	}
	if !mayRead(o, may) {
		return unix.EACCES
	}
	size := span(&o.stat, a)
	if o.buf != nil && len(o.buf.B) != size { // the file's length has changed
		o.buf.Release()
		o.buf, o.got = nil, 0
	}
	if size == 0 {
		return nil
	}
	if o.buf == nil {
		if o.buf, err = o.call.Pool().Get(size); err != nil {
			return unix.ENOMEM
		}
	}
	k, err := o.s.fs.Read(n, o.buf.B[o.got:], int64(a.Offset)+int64(o.got))
	o.got += k
	if o.got > 0 {
		return nil // the next READ gets the error
	}
	return err
}

const writeLen = 4 + nfs3.WccDataLen + 4 + 4 + 8

func verifier(v uint64) (out nfs3.Verifier) {
	binary.BigEndian.PutUint64(out[:], v)
	return out
}

// writeNonblocking answers an unstable WRITE that does not wait for the disk.
func writeNonblocking(o *op) bool {
	a := &o.writeArgs
	d := o.call.Args()
	if a.Decode(d); d.Err() != nil || a.Stable != nfs3.Unstable || int(a.Count) > o.s.cfg.InlineWrite || o.readOnly {
		return false
	}
	n := o.cachedNode(a.File)
	if n == nil {
		return false
	}
	defer n.Release()
	done, err := o.write.Now(n, a.Data, int(a.Count), a.Offset, &o.cred)
	o.s.batchOf(o.call.Conn).changed()
	if err != nil {
		return false
	}
	if e := o.begin(writeLen); e != nil { // if not, the client writes again
		var r nfs3.WriteRes
		o.answerWrite(a, done, &r)
		r.Encode(e)
		o.respond()
	}
	return true
}

func write(o *op) {
	e := o.begin(writeLen)
	if e == nil {
		return
	}
	a := &o.writeArgs
	d := o.call.Args()
	if a.Decode(d); !o.decoded(d) {
		return
	}
	var r nfs3.WriteRes
	n, st := o.writable(a.File)
	if r.Status = st; st == nfs3.OK {
		o.writeTo(n, a, &r)
		n.Release()
	}
	r.Encode(e)
	o.respond()
}

func (o *op) writeTo(n *vfs.Node, a *nfs3.WriteArgs, r *nfs3.WriteRes) {
	done, err := o.write.Do(n, a.Data, int(a.Count), a.Offset, &o.cred)
	if done > 0 {
		err = nil // the client sends the rest again and gets the error then
	}
	if err == nil && a.Stable != nfs3.Unstable && done > 0 {
		err = n.Sync(a.Stable == nfs3.DataSync)
	}
	if r.Status = status(err); err == nil {
		o.answerWrite(a, done, r)
	} else {
		o.s.wccOf(&o.write.Wcc, &r.Wcc)
	}
}

func (o *op) answerWrite(a *nfs3.WriteArgs, done int, r *nfs3.WriteRes) {
	o.s.wccOf(&o.write.Wcc, &r.Wcc)
	r.Count, r.Committed, r.Verf = uint32(done), a.Stable, verifier(o.write.Verifier)
}

func commit(o *op) {
	e := o.begin(4 + nfs3.WccDataLen + 8)
	if e == nil {
		return
	}
	var a nfs3.CommitArgs
	d := o.call.Args()
	if a.Decode(d); !o.decoded(d) {
		return
	}
	var r nfs3.CommitRes
	n, st := o.writable(a.File)
	if r.Status = st; st == nfs3.OK {
		r.Status = status(o.commit(n, &a))
		// Another call's write came in between, so there are no attributes from before.
		o.wcc = vfs.Wcc{Before: o.stat}
		if o.wcc.HasAfter = n.Stat(&o.wcc.After) == nil; o.wcc.HasAfter {
			o.wcc.HasBefore = o.wcc.After.Ctim == o.wcc.Before.Ctim && o.wcc.After.Size == o.wcc.Before.Size
		}
		o.s.wccOf(&o.wcc, &r.Wcc)
		r.Verf = verifier(o.s.fs.Verifier())
		n.Release()
	}
	r.Encode(e)
	o.respond()
}

func (o *op) commit(n *vfs.Node, a *nfs3.CommitArgs) error {
	if n.Kind() != unix.S_IFREG || a.Offset > math.MaxInt64 {
		return unix.EINVAL
	}
	if !o.s.fs.Owns(&o.stat, &o.cred) {
		may, err := o.s.fs.PermitBlocking(n, &o.stat, &o.cred, vfs.MayWrite)
		if err != nil {
			return err
		}
		if may == 0 {
			return unix.EACCES
		}
	}
	return n.Sync(false)
}

func readlink(o *op) {
	e := o.begin(4 + nfs3.PostOpAttrLen + 4)
	if e == nil {
		return
	}
	var a nfs3.ReadlinkArgs
	d := o.call.Args()
	if a.Decode(d); !o.decoded(d) {
		return
	}
	var r nfs3.ReadlinkRes
	n, st := o.resolve(a.Object)
	if r.Status = st; st == nfs3.OK {
		o.s.post(&o.stat, &r.Attr)
		r.Status = status(o.readlink(n, &r))
		n.Release()
	}
	r.Encode(e)
	o.respond()
}

// readlink reads a target into a buffer of the reply, since the target may be placed directly.
func (o *op) readlink(n *vfs.Node, r *nfs3.ReadlinkRes) error {
	buf, err := o.call.Pool().Get(nfs3.MaxPath)
	if err != nil {
		return unix.ENOMEM
	}
	k, err := o.s.fs.Readlink(n, buf.B)
	if err != nil {
		buf.Release()
		return err
	}
	o.call.Reply.Own(buf)
	o.data[0] = buf.B[:k]
	r.Path, r.Length = o.data[:], k
	return nil
}

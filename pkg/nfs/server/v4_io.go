package server

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/nfs/nfs4/state"
	"sluice.dev/sluice/pkg/nfs/vfs"
)

// regular returns the status of an operation on data for an object that has none.
func regular(n *vfs.Node) nfs4.Status {
	switch n.Kind() {
	case unix.S_IFREG:
		return nfs4.OK
	case unix.S_IFDIR:
		return nfs4.ErrIsDir
	case unix.S_IFLNK:
		return nfs4.ErrSymlink
	}
	return nfs4.ErrWrongType
}

// mayUse checks the caller's permissions on the current file, whose attributes are in c.stat: one
// of want is enough, and an owner needs none (RFC 1813 section 4.4).
func (c *compound) mayUse(want uint32) nfs4.Status {
	if c.s.fs.Owns(&c.stat, &c.cred) {
		return nfs4.OK
	}
	may, known := c.s.fs.Permit(c.cur, &c.stat, &c.cred, want)
	if !known {
		if !c.mayWait {
			return wait
		}
		var err error
		if may, err = c.s.fs.PermitBlocking(c.cur, &c.stat, &c.cred, want); err != nil {
			return status4(err)
		}
	}
	if may == 0 {
		return nfs4.ErrAccess
	}
	return nfs4.OK
}

// mayRead checks an operation that reads data: its stateid, then the permissions if it has none of
// an open. Whoever may execute a file may read it.
func (c *compound) mayRead(id *nfs4.StateID) nfs4.Status {
	if st := regular(c.cur); st != nfs4.OK {
		return st
	}
	open, st := c.ioState(id, state.Read)
	if st != nfs4.OK {
		return st
	}
	if err := c.cur.Stat(&c.stat); err != nil {
		return status4(err)
	}
	if open {
		return nfs4.OK
	}
	return c.mayUse(vfs.MayRead | vfs.MayExec)
}

// mayWrite checks an operation that writes data: its stateid and its conflicts. The permissions are
// checked unless opened is true.
func (c *compound) mayWrite(id *nfs4.StateID) (opened bool, st nfs4.Status) {
	if st = regular(c.cur); st != nfs4.OK {
		return false, st
	}
	if opened, st = c.ioState(id, state.Write); st == nfs4.OK {
		st = c.conflict(c.cur, state.UseWrite)
	}
	return opened, st
}

// readHead is the length of a READ's result without data: eof and count.
const readHead = 4 + 4

// read is READ (RFC 8881 section 18.22).
func (c *compound) read() nfs4.Status {
	var a nfs4.ReadArgs
	if a.Decode(c.d); c.d.Err() != nil {
		return nfs4.ErrBadXDR
	}
	if !c.mayWait && !c.s.fs.Nonblocking() {
		return wait
	}
	if st := c.mayRead(&a.StateID); st != nfs4.OK {
		return st
	}
	size := 0
	if room := c.room() - readHead - 3; a.Offset < uint64(c.stat.Size) && room > 0 {
		size = int(min(uint64(min(a.Count, nfs4.MaxData)), uint64(c.stat.Size)-a.Offset, uint64(room)))
	}
	if !c.mayWait && size > c.s.cfg.InlineRead {
		return wait
	}
	if size == 0 {
		res := nfs4.ReadRes{EOF: a.Offset >= uint64(c.stat.Size)}
		res.Encode(c.e)
		return nfs4.OK
	}
	if c.items == len(c.data) {
		return nfs4.ErrResource
	}
	buf, err := c.call.Pool().Get(size)
	if err != nil {
		return nfs4.ErrDelay
	}
	var got int
	if c.mayWait {
		got, err = c.s.fs.Read(c.cur, buf.B, int64(a.Offset))
	} else {
		got, err = c.s.fs.ReadNow(c.cur, buf.B, int64(a.Offset))
	}
	if err != nil && (!c.mayWait || got == 0) { // the next READ gets the error
		buf.Release()
		if !c.mayWait {
			return wait
		}
		return status4(err)
	}
	c.call.Reply.Own(buf)
	data := &c.data[c.items]
	c.items++
	data[0] = buf.B[:got]
	res := nfs4.ReadRes{EOF: got < size || a.Offset+uint64(got) >= uint64(c.stat.Size), Data: data[:], Length: got}
	if err != nil {
		res.EOF = false
	}
	res.Encode(c.e)
	return nfs4.OK
}

// write is WRITE (RFC 8881 section 18.32).
func (c *compound) write() nfs4.Status {
	if !c.mayWait {
		return wait
	}
	a := &c.writeArgs
	if a.Decode(c.d); c.d.Err() != nil {
		return nfs4.ErrBadXDR
	}
	var st nfs4.Status
	if c.writing.Opened, st = c.mayWrite(&a.StateID); st != nfs4.OK {
		return st
	}
	done, err := c.writing.Do(c.cur, a.Data, a.Length, a.Offset, &c.cred)
	if done > 0 {
		err = nil // the client sends the rest again and gets the error then
	}
	if err == nil && a.Stable != nfs4.Unstable && done > 0 {
		err = c.cur.Sync(a.Stable == nfs4.DataSync)
	}
	if err != nil {
		return status4(err)
	}
	res := nfs4.WriteRes{Count: uint32(done), Committed: a.Stable, Verf: verifier4(c.writing.Verifier)}
	res.Encode(c.e)
	return nfs4.OK
}

func verifier4(v uint64) (out nfs4.Verifier) {
	binary.BigEndian.PutUint64(out[:], v)
	return out
}

// commit is COMMIT (RFC 8881 section 18.3). It needs no stateid, and syncs the whole file, so each
// range is valid.
func (c *compound) commit() nfs4.Status {
	if !c.mayWait {
		return wait
	}
	var a nfs4.CommitArgs
	if a.Decode(c.d); c.d.Err() != nil {
		return nfs4.ErrBadXDR
	}
	if st := regular(c.cur); st != nfs4.OK {
		return st
	}
	if err := c.cur.Stat(&c.stat); err != nil {
		return status4(err)
	}
	if st := c.mayUse(vfs.MayWrite); st != nfs4.OK {
		return st
	}
	if err := c.cur.Sync(false); err != nil {
		return status4(err)
	}
	res := nfs4.CommitRes{Verf: verifier4(c.s.fs.Verifier())}
	res.Encode(c.e)
	return nfs4.OK
}

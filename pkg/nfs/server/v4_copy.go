package server

import (
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/nfs/vfs"
)

// maxCopy bounds the bytes of one COPY, which occupies a worker. The client copies the rest by the
// next one.
const maxCopy = 64 << 20

// mayCopy checks files and stateids of a copy from the saved file to the current one. It returns
// the length of the source.
func (c *compound) mayCopy(src, dst *nfs4.StateID) (size uint64, st nfs4.Status) {
	if c.saved.Kind() != unix.S_IFREG || c.cur.Kind() != unix.S_IFREG {
		return 0, nfs4.ErrWrongType
	}
	c.swapFH()
	st = c.mayRead(src)
	size = uint64(c.stat.Size)
	c.swapFH()
	if st == nfs4.OK {
		st = c.changesData(dst)
	}
	return size, st
}

// swapFH swaps the current and the saved filehandle, with their stateids.
func (c *compound) swapFH() {
	c.cur, c.saved = c.saved, c.cur
	c.curState, c.savedState = c.savedState, c.curState
}

// copy is COPY (RFC 7862 section 15.2) within the export, unstable. A long one goes on after the
// reply, if the client allows that and can be called back.
func (c *compound) copy() nfs4.Status {
	if !c.mayWait {
		return wait
	}
	var a nfs4.CopyArgs
	if a.Decode(c.d); c.d.Err() != nil {
		return nfs4.ErrBadXDR
	}
	if a.Sources > 0 {
		return nfs4.ErrNotSupp
	}
	size, st := c.mayCopy(&a.SrcStateID, &a.DstStateID)
	if st != nfs4.OK {
		return st
	}
	if c.saved == c.cur || a.SrcOffset > size || a.Count > size-a.SrcOffset {
		return nfs4.ErrInval
	}
	count := a.Count
	if count == 0 { // to the end of the source
		count = size - a.SrcOffset
	}
	res := nfs4.CopyRes{Requirements: nfs4.CopyRequirements{Consecutive: true, Synchronous: true}}
	res.Response.Verf = verifier4(c.s.fs.Verifier())
	if count > maxCopy && !a.Synchronous && c.startOffload(&a, count, &res) {
		res.Encode(c.e)
		return nfs4.OK
	}
	count = min(count, maxCopy)
	for done := uint64(0); done < count; { // the file system may copy less at once
		c.wcc = vfs.Wcc{}
		n, err := c.s.fs.Copy(c.saved, a.SrcOffset+done, c.cur, a.DstOffset+done, count-done, &c.cred, &c.wcc)
		if err != nil && done == 0 {
			return status4(err)
		}
		if err != nil || n == 0 {
			break
		}
		done += n
		res.Response.Count = done
	}
	res.Encode(c.e)
	return nfs4.OK
}

// clone is CLONE (RFC 7862 section 15.13).
func (c *compound) clone() nfs4.Status {
	if !c.mayWait {
		return wait
	}
	var a nfs4.CloneArgs
	if a.Decode(c.d); c.d.Err() != nil {
		return nfs4.ErrBadXDR
	}
	size, st := c.mayCopy(&a.SrcStateID, &a.DstStateID)
	if st != nfs4.OK {
		return st
	}
	if a.SrcOffset > size || a.Count > size-a.SrcOffset {
		return nfs4.ErrInval
	}
	if c.saved == c.cur {
		count := a.Count
		if count == 0 { // to the end of the source
			count = size - a.SrcOffset
		}
		if max(a.SrcOffset, a.DstOffset)-min(a.SrcOffset, a.DstOffset) < count {
			return nfs4.ErrInval
		}
	}
	c.wcc = vfs.Wcc{}
	return status4(c.s.fs.Clone(c.saved, a.SrcOffset, c.cur, a.DstOffset, a.Count, &c.cred, &c.wcc))
}

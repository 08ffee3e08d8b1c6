package server

import (
	"errors"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/nfs/vfs"
	"sluice.dev/sluice/pkg/xdr"
)

// changesData is mayWrite with the check of permissions.
func (c *compound) changesData(id *nfs4.StateID) nfs4.Status {
	opened, st := c.mayWrite(id)
	if st != nfs4.OK || opened {
		return st
	}
	if err := c.cur.Stat(&c.stat); err != nil {
		return status4(err)
	}
	return c.mayUse(vfs.MayWrite)
}

// allocate is ALLOCATE (RFC 7862 section 15.1).
func (c *compound) allocate() nfs4.Status { return c.reserve((*vfs.FS).Allocate) }

// deallocate is DEALLOCATE (RFC 7862 section 15.4).
func (c *compound) deallocate() nfs4.Status { return c.reserve((*vfs.FS).Deallocate) }

func (c *compound) reserve(change func(*vfs.FS, *vfs.Node, uint64, uint64, *vfs.Cred, *vfs.Wcc) error) nfs4.Status {
	if !c.mayWait {
		return wait
	}
	var a nfs4.AllocateArgs
	if a.Decode(c.d); c.d.Err() != nil {
		return nfs4.ErrBadXDR
	}
	if c.cur.Kind() != unix.S_IFREG {
		return nfs4.ErrWrongType
	}
	if st := c.changesData(&a.StateID); st != nfs4.OK {
		return st
	}
	if a.Length == 0 || a.Offset+a.Length < a.Offset {
		return nfs4.ErrInval
	}
	c.wcc = vfs.Wcc{}
	return status4(change(c.s.fs, c.cur, a.Offset, a.Length, &c.cred, &c.wcc))
}

// seek is SEEK (RFC 7862 section 15.11).
func (c *compound) seek() nfs4.Status {
	if !c.mayWait {
		return wait
	}
	var a nfs4.SeekArgs
	if a.Decode(c.d); c.d.Err() != nil {
		return nfs4.ErrBadXDR
	}
	if a.What != nfs4.ContentData && a.What != nfs4.ContentHole {
		return nfs4.ErrUnionNotSupp
	}
	if st := c.mayRead(&a.StateID); st != nfs4.OK {
		return st
	}
	if a.Offset >= uint64(c.stat.Size) {
		return nfs4.ErrNXIO
	}
	at, err := c.s.fs.Seek(c.cur, a.Offset, a.What == nfs4.ContentHole)
	if errors.Is(err, unix.ENXIO) { // no data follow
		at, err = uint64(c.stat.Size), nil
	}
	if err != nil {
		return status4(err)
	}
	res := nfs4.SeekRes{EOF: at >= uint64(c.stat.Size), Offset: at}
	res.Encode(c.e)
	return nfs4.OK
}

// Lengths of READ_PLUS's result, in bytes.
const (
	readPlusHead = 4 + 4
	segmentHead  = 4 + 8 + 8 // the longer one, of a hole
)

// maxSegments bounds the segments of a READ_PLUS: a file of many holes is read in parts.
const maxSegments = 64

// readPlus is READ_PLUS (RFC 7862 section 15.10). Its data are inline (RFC 8267 section 6.1).
func (c *compound) readPlus() nfs4.Status {
	if !c.mayWait {
		return wait
	}
	var a nfs4.ReadPlusArgs
	if a.Decode(c.d); c.d.Err() != nil {
		return nfs4.ErrBadXDR
	}
	if st := c.mayRead(&a.StateID); st != nfs4.OK {
		return st
	}
	size := uint64(c.stat.Size)
	end := min(size, a.Offset+min(uint64(a.Count), nfs4.MaxData))
	if a.Offset >= size {
		end = a.Offset
	}
	room := min(c.room(), readPlusHead+4*segmentHead+int(end-a.Offset))
	if !c.need(max(room, readPlusHead)) {
		return c.tooBig()
	}
	begin, last := c.e.Mark(), c.e.Pos()+room
	c.e.Bool(false)
	count := len(c.e.Bytes())
	c.e.Uint32(0)
	off, segments := a.Offset, uint32(0)
	for off < end && segments < maxSegments {
		if last-c.e.Pos() < segmentHead {
			break
		}
		next, err := c.segment(off, end, last-c.e.Pos()-segmentHead)
		if err != nil && segments == 0 {
			c.e.Truncate(begin)
			return status4(err)
		}
		if err != nil || next == off {
			break
		}
		off = next
		segments++
	}
	if off >= size {
		c.e.PutUint32(count-4, 1)
	}
	c.e.PutUint32(count, segments)
	return nfs4.OK
}

// segment writes the hole or the data at off, at most to end, and data of at most left bytes. It
// returns the offset behind.
func (c *compound) segment(off, end uint64, left int) (uint64, error) {
	data, err := c.s.fs.Seek(c.cur, off, false)
	if errors.Is(err, unix.ENXIO) {
		data, err = end, nil
	}
	if err != nil {
		return off, err
	}
	if data = min(data, end); data > off {
		hole := nfs4.Segment{Content: nfs4.ContentHole, Offset: off, Length: data - off}
		hole.Encode(c.e)
		return data, nil
	}
	hole, err := c.s.fs.Seek(c.cur, off, true)
	if err != nil {
		return off, err
	}
	n := min(int(min(hole, end)-off), left&^3)
	if n <= 0 {
		return off, nil
	}
	before := c.e.Mark()
	c.e.Uint32(uint32(nfs4.ContentData))
	c.e.Uint64(off)
	c.e.Uint32(uint32(n))
	b := c.e.Grow(xdr.Round(n))
	got, err := c.s.fs.Read(c.cur, b[:n], int64(off))
	if err != nil || got < n { // the file became shorter
		c.e.Truncate(before)
		return off, err
	}
	clear(b[n:])
	return off + uint64(n), nil
}

// ioAdvise is IO_ADVISE (RFC 7862 section 15.5). Of the hints only that data will be needed is
// about a range; the others would be for all users of the file.
func (c *compound) ioAdvise() nfs4.Status {
	if !c.mayWait {
		return wait
	}
	var a nfs4.IOAdviseArgs
	if a.Decode(c.d); c.d.Err() != nil {
		return nfs4.ErrBadXDR
	}
	if st := c.mayRead(&a.StateID); st != nfs4.OK {
		return st
	}
	const willNeed = 4
	var res nfs4.IOAdviseRes
	if a.Hints.Has(willNeed) {
		if err := c.s.fs.Advise(c.cur, a.Offset, a.Length, unix.FADV_WILLNEED); err != nil {
			return status4(err)
		}
		res.Hints.Add(willNeed)
	}
	res.Encode(c.e)
	return nfs4.OK
}

package server

import (
	"bytes"
	"errors"
	"math"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/vfs"
	"sluice.dev/sluice/pkg/xdr"
)

// listing is a running READDIR or READDIRPLUS.
type listing struct {
	o        *op
	dir      *vfs.Node
	writer   nfs3.ListWriter
	plus     bool
	search   bool // the caller may search the directory, as access to the entries takes
	entry    nfs3.EntryPlus
	handle   vfs.Handle
	stat     vfs.Stat
	fileID   uint64 // the directory's own
	verifier nfs3.Verifier
}

func readdir(o *op) {
	var a nfs3.ReaddirArgs
	d := o.call.Args()
	if a.Decode(d); !o.decoded(d) {
		return
	}
	l := listing{o: o}
	l.list(a.Dir, a.Cookie, a.Verf, a.Count, a.Count)
}

func readdirplus(o *op) {
	var a nfs3.ReaddirPlusArgs
	d := o.call.Args()
	if a.Decode(d); !o.decoded(d) {
		return
	}
	l := listing{o: o, plus: true}
	l.list(a.Dir, a.Cookie, a.Verf, a.MaxCount, a.DirCount)
}

// Buffers for the kernel's entries, in bytes: at least one longest name, and small enough to
// discard.
const (
	minDirents = 4 << 10
	maxDirents = 64 << 10
)

func (l *listing) list(h nfs3.Handle, cookie uint64, verf nfs3.Verifier, count, dirCount uint32) {
	o := l.o
	count = min(count, nfs3.MaxData)
	e := o.begin(4 + nfs3.PostOpAttrLen + 8 + 8 + int(count))
	if e == nil {
		return
	}
	head := nfs3.ReaddirRes{}
	dir, st := o.resolve(h)
	if st == nfs3.OK {
		l.dir, l.fileID = dir, o.stat.Ino
		l.verifier = cookieVerifier(dir)
		st = l.check(cookie, verf)
		o.s.post(&o.stat, &head.Attr)
	}
	if st == nfs3.OK {
		l.fill(e, &head, cookie, count, dirCount)
	} else {
		head.Status = st
		head.Encode(e)
	}
	if dir != nil {
		dir.Release()
	}
	o.respond()
}

// cookieVerifier changes with the directory's handle, thus only with the key: cookies are the file
// system's own seek positions and stay valid.
func cookieVerifier(dir *vfs.Node) (v nfs3.Verifier) {
	h := dir.Handle().Bytes()
	copy(v[:], h[len(h)-len(v):])
	return v
}

func (l *listing) check(cookie uint64, verf nfs3.Verifier) nfs3.Status {
	o := l.o
	if !l.dir.IsDir() {
		return nfs3.ErrNotDir
	}
	may, err := o.s.fs.PermitBlocking(l.dir, &o.stat, &o.cred, vfs.MayRead|vfs.MayExec)
	switch {
	case err != nil:
		return status(err)
	case may&vfs.MayRead == 0:
		return nfs3.ErrAcces
	}
	l.search = may&vfs.MayExec != 0
	// Linux sends no verifier when it continues after dropping its cache.
	if cookie > math.MaxInt64 || cookie != 0 && verf != l.verifier && verf != (nfs3.Verifier{}) {
		return nfs3.ErrBadCookie
	}
	return nfs3.OK
}

// fill writes entries from the cookie on, until the reply or the directory ends.
func (l *listing) fill(e *xdr.Encoder, head *nfs3.ReaddirRes, cookie uint64, count, dirCount uint32) {
	start := e.Mark()
	fail := func(err error) {
		e.Truncate(start)
		if head.Status = status(err); errors.Is(err, unix.EINVAL) {
			head.Status = nfs3.ErrBadCookie // an invalid position for the file system
		}
		head.Encode(e)
	}
	buf, err := l.o.call.Pool().Get(int(min(max(count, minDirents), maxDirents)))
	if err != nil {
		fail(unix.ENOMEM)
		return
	}
	defer buf.Release()
	head.Verf = l.verifier
	l.writer.Begin(e, head, count, dirCount)
	for {
		n, err := l.o.s.fs.ReadDir(l.dir, int64(cookie), buf.B)
		if err != nil && l.writer.Len() == 0 {
			fail(err)
			return
		}
		if n == 0 || err != nil { // the next call gets the error again
			_ = l.writer.End(err == nil)
			return
		}
		var full bool
		if cookie, full = l.add(buf, n); full {
			_ = l.writer.End(false)
			return
		}
	}
}

// add writes the entries in buf. It returns the cookie after the last one, and whether the room ran
// out.
func (l *listing) add(buf *bufpool.Buf, n int) (cookie uint64, full bool) {
	for d := vfs.Entries(buf.B[:n]); d.Next(); {
		l.entry.Entry = nfs3.Entry{FileID: d.Ino, Name: d.Name, Cookie: uint64(d.Off)}
		if l.dir == l.o.s.fs.Root() && bytes.Equal(d.Name, dotdot) {
			l.entry.FileID = l.fileID // hide the parent
		}
		if !l.plus {
			if !l.writer.Add(&l.entry.Entry) {
				return cookie, true
			}
		} else if l.describe(); !l.writer.AddPlus(&l.entry) {
			return cookie, true
		}
		cookie = l.entry.Cookie
	}
	return cookie, false
}

var (
	dot    = []byte(".")
	dotdot = []byte("..")
)

// describe adds handle and attributes to the entry, unless it is "." or "..", gone, or out of the
// caller's reach.
func (l *listing) describe() {
	l.entry.Handle.Handle = nil
	l.entry.Attr.Present = false
	if !l.search || bytes.Equal(l.entry.Name, dot) || bytes.Equal(l.entry.Name, dotdot) || l.o.name.Set(l.entry.Name) != nil {
		return
	}
	if l.o.s.fs.Identify(l.dir, &l.o.name, &l.handle, &l.stat) == nil {
		if !l.o.s.private(l.handle.Key()) {
			l.o.s.post(&l.stat, &l.entry.Attr)
		}
		l.entry.Handle.Handle = l.handle.Bytes()
		l.entry.FileID = l.stat.Ino
	}
}

package server

import (
	"bytes"
	"errors"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/vfs"
)

func lookup(o *op) {
	e := o.begin(4 + nfs3.HandleLen + 2*nfs3.PostOpAttrLen)
	if e == nil {
		return
	}
	var a nfs3.LookupArgs
	d := o.call.Args()
	if a.Decode(d); !o.decoded(d) {
		return
	}
	var r nfs3.LookupRes
	dir, st := o.resolve(a.Dir)
	if r.Status = st; st == nfs3.OK {
		o.s.post(&o.stat, &r.DirAttr)
		n, err := o.lookup(dir, a.Name)
		if r.Status = status(err); err == nil {
			defer n.Release() // the reply's handle is a view of it
			r.Object = n.Handle().Bytes()
			o.s.postOf(n, &r.Attr)
		}
		dir.Release()
	}
	r.Encode(e)
	o.respond()
}

func (o *op) lookup(dir *vfs.Node, name []byte) (*vfs.Node, error) {
	if !dir.IsDir() {
		return nil, unix.ENOTDIR
	}
	if err := o.name.Set(name); err != nil {
		return nil, err
	}
	return o.s.fs.Lookup(dir, &o.name, &o.cred)
}

const createLen = 4 + nfs3.PostOpFHLen + nfs3.PostOpAttrLen + nfs3.WccDataLen

// making is the common part of CREATE, MKDIR, SYMLINK and MKNOD. It calls make with the directory
// and the attributes; the name is in o.name.
func (o *op) making(where *nfs3.DirOpArgs, in *nfs3.SetAttrs, r *nfs3.CreateRes, make func(*vfs.Node, *vfs.Attrs) (*vfs.Node, error)) (n *vfs.Node) {
	dir, st := o.writable(where.Dir)
	if r.Status = st; st != nfs3.OK {
		return nil
	}
	defer dir.Release()
	var attrs vfs.Attrs
	if r.Status = attrsOf(in, &attrs); r.Status == nfs3.OK {
		r.Status = status(o.name.Set(where.Name))
	}
	if r.Status != nfs3.OK {
		o.s.unchanged(dir, &r.Wcc)
		return nil
	}
	o.wcc = vfs.Wcc{}
	if o.journaled() {
		o.wcc.Made = o.recordMade
	}
	n, err := o.madeBefore(dir)
	if n == nil && err == nil {
		n, err = make(dir, &attrs)
	}
	if r.Status = status(err); err == nil {
		r.Object.Handle = n.Handle().Bytes()
		o.s.postOf(n, &r.Attr)
	}
	if o.wcc.HasAfter {
		o.s.wccOf(&o.wcc, &r.Wcc)
	} else {
		o.s.unchanged(dir, &r.Wcc)
	}
	return n
}

// made ends making after the reply was encoded.
func (o *op) made(n *vfs.Node) {
	if n != nil {
		n.Release()
	}
	o.respond()
}

func create(o *op) {
	e := o.begin(createLen)
	if e == nil {
		return
	}
	var a nfs3.CreateArgs
	d := o.call.Args()
	if a.Decode(d); !o.decoded(d) {
		return
	}
	var r nfs3.CreateRes
	how := [...]vfs.Exclusive{nfs3.Unchecked: vfs.Shared, nfs3.Guarded: vfs.Guarded, nfs3.Exclusive: vfs.Verified}[a.Mode]
	n := o.making(&a.Where, &a.Attrs, &r, func(dir *vfs.Node, attrs *vfs.Attrs) (*vfs.Node, error) {
		if how == vfs.Shared {
			o.intend(dir, &o.name)
			if o.changedSince() && o.now.size != int64(attrs.Size) {
				attrs.SetSize = false
			}
		}
		n, err := o.s.fs.Create(dir, &o.name, how, a.Verf, attrs, &o.cred, &o.wcc)
		if err == nil && o.repeated { // the work of an earlier process may not be on stable storage
			if err = errors.Join(n.Sync(false), dir.Sync(false)); err != nil {
				n.Release()
				return nil, err
			}
		}
		return n, err
	})
	r.Encode(e)
	o.made(n)
}

func mkdir(o *op) {
	e := o.begin(createLen)
	if e == nil {
		return
	}
	var a nfs3.MkdirArgs
	d := o.call.Args()
	if a.Decode(d); !o.decoded(d) {
		return
	}
	var r nfs3.MkdirRes
	n := o.making(&a.Where, &a.Attrs, &r, func(dir *vfs.Node, attrs *vfs.Attrs) (*vfs.Node, error) {
		return o.s.fs.Mkdir(dir, &o.name, attrs, &o.cred, &o.wcc)
	})
	r.Encode(e)
	o.made(n)
}

func symlink(o *op) {
	e := o.begin(createLen)
	if e == nil {
		return
	}
	a := &o.symlinkArgs
	d := o.call.Args()
	if a.Decode(d); !o.decoded(d) {
		return
	}
	var r nfs3.SymlinkRes
	target := string(bytes.Join(a.Path, nil))
	n := o.making(&a.Where, &a.Attrs, &r, func(dir *vfs.Node, attrs *vfs.Attrs) (*vfs.Node, error) {
		return o.s.fs.Symlink(dir, &o.name, target, attrs, &o.cred, &o.wcc)
	})
	r.Encode(e)
	o.made(n)
}

var kinds = [...]uint32{nfs3.Blk: unix.S_IFBLK, nfs3.Chr: unix.S_IFCHR, nfs3.Sock: unix.S_IFSOCK, nfs3.FIFO: unix.S_IFIFO}

func mknod(o *op) {
	e := o.begin(createLen)
	if e == nil {
		return
	}
	var a nfs3.MknodArgs
	d := o.call.Args()
	if a.Decode(d); !o.decoded(d) {
		return
	}
	var r nfs3.MknodRes
	n := o.making(&a.Where, &a.Attrs, &r, func(dir *vfs.Node, attrs *vfs.Attrs) (*vfs.Node, error) {
		if kinds[a.Type] == 0 {
			return nil, nfs3.ErrBadType
		}
		return o.s.fs.Mknod(dir, &o.name, kinds[a.Type], a.Spec.Major, a.Spec.Minor, attrs, &o.cred, &o.wcc)
	})
	r.Encode(e)
	o.made(n)
}

func remove(o *op) { o.removing((*vfs.FS).Remove) }
func rmdir(o *op)  { o.removing((*vfs.FS).Rmdir) }

func (o *op) removing(unlink func(*vfs.FS, *vfs.Node, *vfs.Name, *vfs.Cred, *vfs.Wcc) error) {
	e := o.begin(4 + nfs3.WccDataLen)
	if e == nil {
		return
	}
	var a nfs3.RemoveArgs
	d := o.call.Args()
	if a.Decode(d); !o.decoded(d) {
		return
	}
	var r nfs3.RemoveRes
	dir, st := o.writable(a.Dir)
	if r.Status = st; st == nfs3.OK {
		o.wcc = vfs.Wcc{}
		err := o.name.Set(a.Name)
		if err == nil {
			if o.intend(dir, &o.name); o.gone() {
				err = dir.Sync(false)
			} else {
				err = unlink(o.s.fs, dir, &o.name, &o.cred, &o.wcc)
			}
		}
		r.Status = status(err)
		o.s.wccOrUnchanged(dir, &o.wcc, &r.Wcc)
		dir.Release()
	}
	r.Encode(e)
	o.respond()
}

// wccOrUnchanged is wccOf, or unchanged if the operation was refused before it began.
func (s *Server) wccOrUnchanged(n *vfs.Node, w *vfs.Wcc, out *nfs3.WccData) {
	if w.HasAfter {
		s.wccOf(w, out)
	} else {
		s.unchanged(n, out)
	}
}

func rename(o *op) {
	e := o.begin(4 + 2*nfs3.WccDataLen)
	if e == nil {
		return
	}
	var a nfs3.RenameArgs
	d := o.call.Args()
	if a.Decode(d); !o.decoded(d) {
		return
	}
	var r nfs3.RenameRes
	var to *vfs.Node
	from, st := o.writable(a.From.Dir)
	if st == nfs3.OK {
		to, st = o.writable(a.To.Dir)
	}
	if r.Status = st; st == nfs3.OK {
		o.wcc, o.wcc2 = vfs.Wcc{}, vfs.Wcc{}
		r.Status = status(o.rename(from, a.From.Name, to, a.To.Name))
		o.s.wccOrUnchanged(from, &o.wcc, &r.FromWcc)
		o.s.wccOrUnchanged(to, &o.wcc2, &r.ToWcc)
	}
	for _, n := range [...]*vfs.Node{from, to} {
		if n != nil {
			n.Release()
		}
	}
	r.Encode(e)
	o.respond()
}

func (o *op) rename(from *vfs.Node, fromName []byte, to *vfs.Node, toName []byte) error {
	if err := o.name.Set(fromName); err != nil {
		return err
	}
	if err := o.name2.Set(toName); err != nil {
		return err
	}
	if o.name.Dot() || o.name.DotDot() || o.name2.Dot() || o.name2.DotDot() {
		return unix.EINVAL
	}
	if o.intend(from, &o.name); o.gone() {
		return errors.Join(to.Sync(false), from.Sync(false))
	}
	return o.s.fs.Rename(from, &o.name, to, &o.name2, &o.cred, &o.wcc, &o.wcc2)
}

func link(o *op) {
	e := o.begin(4 + nfs3.PostOpAttrLen + nfs3.WccDataLen)
	if e == nil {
		return
	}
	var a nfs3.LinkArgs
	d := o.call.Args()
	if a.Decode(d); !o.decoded(d) {
		return
	}
	var r nfs3.LinkRes
	var dir *vfs.Node
	file, st := o.writable(a.File)
	if st == nfs3.OK {
		dir, st = o.writable(a.Link.Dir)
	}
	if r.Status = st; st == nfs3.OK {
		o.wcc = vfs.Wcc{}
		err := o.name.Set(a.Link.Name)
		switch {
		case err != nil:
		case o.name.Dot() || o.name.DotDot():
			err = unix.EEXIST
		default:
			if o.intend(dir, &o.name); o.linked(file) {
				err = errors.Join(file.Sync(false), dir.Sync(false))
			} else {
				err = o.s.fs.Link(file, dir, &o.name, &o.cred, &o.wcc)
			}
		}
		r.Status = status(err)
		o.s.wccOrUnchanged(dir, &o.wcc, &r.Wcc)
		dir.Release()
	}
	if file != nil {
		o.s.postOf(file, &r.Attr)
		file.Release()
	}
	r.Encode(e)
	o.respond()
}

package server

import (
	"bytes"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/vfs"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

// maxMounts bounds the list of DUMP, which is informational (RFC 1813 appendix I). The oldest
// entries go.
const maxMounts = 1024

// mountEntry is a client with a directory that it mounted.
type mountEntry struct{ host, dir string }

type mountList struct {
	mu      sync.Mutex
	entries []mountEntry // oldest first
}

func (m *mountList) add(e mountEntry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.removeLocked(func(old mountEntry) bool { return old == e })
	if len(m.entries) == maxMounts {
		m.entries = append(m.entries[:0], m.entries[1:]...)
	}
	m.entries = append(m.entries, e)
}

func (m *mountList) remove(is func(mountEntry) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.removeLocked(is)
}

func (m *mountList) removeLocked(is func(mountEntry) bool) {
	left := m.entries[:0]
	for _, e := range m.entries {
		if !is(e) {
			left = append(left, e)
		}
	}
	clear(m.entries[len(left):])
	m.entries = left
}

func (m *mountList) list() []mountEntry {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]mountEntry(nil), m.entries...)
}

func (m *mountList) len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.entries)
}

func (s *Server) serveMount(c *oncrpc.Call) {
	if c.Procedure >= nfs3.MountProcedures {
		c.ReplyAccept(oncrpc.ProcUnavail)
		return
	}
	if c.Procedure == nfs3.MountProcNull {
		c.ReplyAccept(oncrpc.Success)
		return
	}
	rule := s.rule(c.Conn.Remote.Addr())
	o := s.opOf(c)
	o.cred = vfs.Cred{}
	if rule == nil && c.Procedure != nfs3.MountProcMnt {
		c.ReplyDenied(oncrpc.AuthTooWeak)
		return
	}
	host := c.Conn.Remote.Addr().Unmap().String()
	switch c.Procedure {
	case nfs3.MountProcMnt:
		if rule == nil {
			s.log.Info("mount refused: no access rule names the client", "client", host)
			refuseMount(o)
			return
		}
		o.run = mnt
		o.submit()
	case nfs3.MountProcUmnt:
		var a nfs3.MountArgs
		d := c.Args()
		if a.Decode(d); o.decoded(d) {
			gone := mountEntry{host, string(a.Path)}
			s.mounts.remove(func(e mountEntry) bool { return e == gone })
			c.ReplyAccept(oncrpc.Success)
		}
	case nfs3.MountProcUmntAll:
		s.mounts.remove(func(e mountEntry) bool { return e.host == host })
		c.ReplyAccept(oncrpc.Success)
	case nfs3.MountProcDump:
		dump(o)
	case nfs3.MountProcExport:
		export(o)
	}
}

func refuseMount(o *op) {
	if e := o.begin(4); e != nil {
		r := nfs3.MountRes{Status: nfs3.ErrAcces}
		r.Encode(e)
		o.respond()
	}
}

var flavors = []uint32{oncrpc.AuthSys}

// mnt answers MNT for "/", "/Name" and directories beneath them. It looks up the path as the
// server, like other mount daemons: permissions count when the directory is used.
func mnt(o *op) {
	e := o.begin(4 + nfs3.HandleLen + 8)
	if e == nil {
		return
	}
	var a nfs3.MountArgs
	d := o.call.Args()
	if a.Decode(d); !o.decoded(d) {
		return
	}
	var r nfs3.MountRes
	n, err := o.s.mountPoint(a.Path)
	if err != nil {
		r.Status = mountStatus(err)
	} else {
		r.Handle, r.Flavors = n.Handle().Bytes(), flavors
		defer n.Release()
		o.s.mounts.add(mountEntry{o.call.Conn.Remote.Addr().Unmap().String(), string(a.Path)})
	}
	r.Encode(e)
	o.respond()
}

func (s *Server) mountPoint(path []byte) (*vfs.Node, error) {
	rest := bytes.Trim(path, "/")
	if s.cfg.Name != "" {
		if name, below, _ := bytes.Cut(rest, []byte("/")); string(name) == s.cfg.Name {
			rest = below
		}
	}
	n, err := s.fs.Resolve(s.fs.Root().Handle().Bytes())
	if err != nil {
		return nil, err
	}
	for part := range strings.SplitSeq(string(rest), "/") {
		if part == "" || part == "." {
			continue
		}
		var name vfs.Name
		var next *vfs.Node
		if err = name.Set([]byte(part)); err == nil {
			next, err = s.fs.LookupSelf(n, &name)
		}
		n.Release()
		if err != nil {
			return nil, err
		}
		n = next
	}
	if !n.IsDir() {
		n.Release()
		return nil, unix.ENOTDIR
	}
	return n, nil
}

// mountStatus is status within the values of mountstat3.
func mountStatus(err error) nfs3.Status {
	switch st := status(err); st {
	case nfs3.ErrPerm, nfs3.ErrNoEnt, nfs3.ErrIO, nfs3.ErrAcces, nfs3.ErrNotDir, nfs3.ErrInval, nfs3.ErrNameTooLong, nfs3.ErrNotSupp:
		return st
	}
	return nfs3.ErrServerFault
}

func dump(o *op) {
	list := o.s.mounts.list()
	r := nfs3.DumpRes{Mounts: make([]nfs3.MountEntry, 0, len(list))}
	size := 4
	for _, m := range list {
		r.Mounts = append(r.Mounts, nfs3.MountEntry{Host: []byte(m.host), Dir: []byte(m.dir)})
		size += 20 + len(m.host) + len(m.dir)
	}
	if e := o.begin(size); e != nil {
		r.Encode(e)
		o.respond()
	}
}

// export answers EXPORT with the one export and its networks, under one name: "/Name" would look
// like another export inside "/", and libnfs for example would mount it too.
func export(o *op) {
	x := nfs3.Export{Dir: []byte("/")}
	size := 4*4 + xdr.Round(len(x.Dir))
	for _, rule := range o.s.access.Load().All() {
		for _, p := range rule.Networks {
			if len(x.Groups) < nfs3.MaxMountList/2 {
				g := []byte(p.String())
				x.Groups = append(x.Groups, g)
				size += 2*4 + xdr.Round(len(g))
			}
		}
	}
	if e := o.begin(size); e != nil {
		r := nfs3.ExportRes{Exports: []nfs3.Export{x}}
		r.Encode(e)
		o.respond()
	}
}

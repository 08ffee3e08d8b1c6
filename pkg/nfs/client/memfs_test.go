package client_test

import (
	"encoding/binary"
	"slices"
	"sync"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

// memFS is an NFS server in memory with configurable faults, limited to the needs of the client's
// tests.
type memFS struct {
	mu    sync.Mutex
	files map[uint64]*memFile
	next  uint64
	verf  nfs3.Verifier

	shortRead, shortWrite int  // maximum bytes per call, if > 0
	noAttrs, noHandles    bool // omit optional fields
	noPlus                bool // READDIRPLUS is not supported
	stuckList             bool // lists never end
	silent                map[uint32]bool
	busy                  map[uint32]int // number of next calls answered NFS3ERR_JUKEBOX
	// number of WRITEs before the verifier changes and uncommitted data are lost; once
	restartAfter int
	restartEvery bool
	wrote        int
	stableWrites int
	commits      int
	rtmax        uint32
}

type memFile struct {
	attr      nfs3.Attr
	data      []byte
	committed []byte
	names     []string
	entries   map[string]uint64
}

func newMemFS() *memFS {
	fs := &memFS{files: map[uint64]*memFile{}, rtmax: 8192, silent: map[uint32]bool{}, busy: map[uint32]int{}}
	fs.make(nfs3.Dir, nfs3.SetAttrs{SetMode: true, Mode: 0o755})
	return fs
}

func (fs *memFS) make(t nfs3.Type, s nfs3.SetAttrs) uint64 {
	fs.next++
	f := &memFile{attr: nfs3.Attr{Type: t, Nlink: 1, FileID: fs.next, FSID: 7}}
	if t == nfs3.Dir {
		f.entries = map[string]uint64{}
	}
	fs.files[fs.next] = f
	f.set(s)
	return fs.next
}

func (f *memFile) set(s nfs3.SetAttrs) {
	if s.SetMode {
		f.attr.Mode = s.Mode
	}
	if s.SetUID {
		f.attr.UID = s.UID
	}
	if s.SetSize {
		f.resize(int(s.Size))
	}
	if s.MtimeHow == nfs3.SetToClientTime {
		f.attr.Mtime = s.Mtime
	}
	f.attr.Ctime.Sec++
}

func (f *memFile) resize(n int) {
	for len(f.data) < n {
		f.data = append(f.data, 0)
	}
	f.data = f.data[:n]
	f.attr.Size = uint64(n)
}

func handleOf(id uint64) nfs3.Handle { return binary.BigEndian.AppendUint64([]byte("mem!"), id) }

func (fs *memFS) find(h nfs3.Handle) (*memFile, nfs3.Status) {
	if len(h) != 12 {
		return nil, nfs3.ErrBadHandle
	}
	f := fs.files[binary.BigEndian.Uint64(h[4:])]
	if f == nil {
		return nil, nfs3.ErrStale
	}
	return f, nfs3.OK
}

func (fs *memFS) dir(h nfs3.Handle) (*memFile, nfs3.Status) {
	f, st := fs.find(h)
	if st == nfs3.OK && f.attr.Type != nfs3.Dir {
		st = nfs3.ErrNotDir
	}
	return f, st
}

func (fs *memFS) post(f *memFile) nfs3.PostOpAttr {
	if f == nil || fs.noAttrs {
		return nfs3.PostOpAttr{}
	}
	return nfs3.PostOpAttr{Present: true, Attr: f.attr}
}

func (d *memFile) add(name string, id uint64) {
	if _, ok := d.entries[name]; !ok {
		d.names = append(d.names, name)
	}
	d.entries[name] = id
}

func (d *memFile) drop(name string) {
	delete(d.entries, name)
	d.names = slices.DeleteFunc(d.names, func(n string) bool { return n == name })
}

func (fs *memFS) ServeRPC(c *oncrpc.Call) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.silent[c.Procedure] {
		c.Drop()
		return
	}
	e, err := c.BeginReply(1 << 16)
	if err != nil {
		c.Drop()
		return
	}
	d := c.Args()
	if c.Program == nfs3.Program && fs.busy[c.Procedure] > 0 {
		fs.busy[c.Procedure]--
		e.Uint32(uint32(nfs3.ErrJukebox))
		if c.Procedure != nfs3.ProcGetAttr {
			e.Uint64(0) // no attributes
		}
		c.Respond()
		return
	}
	switch {
	case c.Program == nfs3.MountProgram && c.Procedure == nfs3.MountProcMnt:
		var a nfs3.MountArgs
		a.Decode(d)
		res := nfs3.MountRes{Status: nfs3.ErrNoEnt}
		if string(a.Path) == "/export" {
			res = nfs3.MountRes{Handle: handleOf(1), Flavors: []uint32{oncrpc.AuthSys}}
		}
		res.Encode(e)
	case c.Program == nfs3.MountProgram && c.Procedure == nfs3.MountProcUmnt:
	case c.Program == nfs3.Program && c.Procedure < nfs3.Procedures:
		fs.serve(c, d, e)
	default:
		c.ReplyAccept(oncrpc.ProgUnavail)
		return
	}
	if d.Err() != nil {
		c.ReplyAccept(oncrpc.GarbageArgs)
		return
	}
	c.Respond()
}

func (fs *memFS) serve(c *oncrpc.Call, d *xdr.Decoder, e *xdr.Encoder) {
	switch procedure := c.Procedure; procedure {
	case nfs3.ProcNull:
	case nfs3.ProcGetAttr, nfs3.ProcFSStat, nfs3.ProcFSInfo, nfs3.ProcPathConf, nfs3.ProcReadlink:
		var a nfs3.HandleArgs
		a.Decode(d)
		f, st := fs.find(a.Object)
		fs.serveHandle(c, f, st, e)
	case nfs3.ProcSetAttr:
		var a nfs3.SetAttrArgs
		a.Decode(d)
		f, st := fs.find(a.Object)
		if st == nfs3.OK && a.Guard && a.GuardCtime != f.attr.Ctime {
			st = nfs3.ErrNotSync
		}
		if st == nfs3.OK {
			f.set(a.New)
		}
		encode(e, &nfs3.SetAttrRes{Status: st, Wcc: nfs3.WccData{After: fs.post(f)}})
	case nfs3.ProcAccess:
		var a nfs3.AccessArgs
		a.Decode(d)
		f, st := fs.find(a.Object)
		encode(e, &nfs3.AccessRes{Status: st, Attr: fs.post(f), Access: a.Access & (nfs3.AccessRead | nfs3.AccessLookup)})
	case nfs3.ProcRead, nfs3.ProcWrite, nfs3.ProcCommit:
		fs.serveData(c, d, e)
	case nfs3.ProcReaddir, nfs3.ProcReaddirPlus:
		fs.serveList(procedure, d, e)
	default:
		fs.serveNames(procedure, d, e)
	}
}

// item copies data to memory that transports can send from.
func item(c *oncrpc.Call, data []byte) [][]byte {
	b, err := c.Pool().Get(len(data))
	if err != nil {
		panic(err)
	}
	c.Reply.Own(b)
	copy(b.B, data)
	return [][]byte{b.B}
}

func encode(e *xdr.Encoder, m interface{ Encode(*xdr.Encoder) }) { m.Encode(e) }

func (fs *memFS) serveHandle(c *oncrpc.Call, f *memFile, st nfs3.Status, e *xdr.Encoder) {
	switch c.Procedure {
	case nfs3.ProcGetAttr:
		res := nfs3.GetAttrRes{Status: st}
		if f != nil {
			res.Attr = f.attr
		}
		encode(e, &res)
	case nfs3.ProcFSStat:
		encode(e, &nfs3.FSStatRes{Status: st, Attr: fs.post(f), TotalBytes: 1000, FreeBytes: 600, AvailBytes: 500})
	case nfs3.ProcFSInfo:
		encode(e, &nfs3.FSInfoRes{Status: st, Attr: fs.post(f), RTMax: fs.rtmax, WTMax: fs.rtmax, DTPref: 4096, Properties: nfs3.FSFSymlink})
	case nfs3.ProcPathConf:
		encode(e, &nfs3.PathConfRes{Status: st, Attr: fs.post(f), LinkMax: 32000, NameMax: 255, NoTrunc: true, CasePreserving: true})
	case nfs3.ProcReadlink:
		res := nfs3.ReadlinkRes{Status: st, Attr: fs.post(f)}
		if f != nil && f.attr.Type != nfs3.Lnk {
			res.Status = nfs3.ErrInval
		} else if f != nil {
			res.Path, res.Length = item(c, f.data), len(f.data)
		}
		encode(e, &res)
	}
}

func (fs *memFS) serveData(c *oncrpc.Call, d *xdr.Decoder, e *xdr.Encoder) {
	switch c.Procedure {
	case nfs3.ProcRead:
		var a nfs3.ReadArgs
		a.Decode(d)
		f, st := fs.find(a.File)
		res := nfs3.ReadRes{Status: st, Attr: fs.post(f)}
		if f != nil {
			at := min(a.Offset, uint64(len(f.data)))
			n := min(uint64(a.Count), uint64(len(f.data))-at)
			if fs.shortRead > 0 {
				n = min(n, uint64(fs.shortRead))
			}
			res.Count, res.EOF, res.Data = uint32(n), at+n == uint64(len(f.data)), item(c, f.data[at:at+n])
		}
		encode(e, &res)
	case nfs3.ProcWrite:
		var a nfs3.WriteArgs
		a.Decode(d)
		f, st := fs.find(a.File)
		res := nfs3.WriteRes{Status: st, Wcc: nfs3.WccData{After: fs.post(f)}, Committed: a.Stable}
		if f != nil {
			res.Count = fs.write(f, &a)
			res.Verf = fs.verf
		}
		encode(e, &res)
	case nfs3.ProcCommit:
		var a nfs3.CommitArgs
		a.Decode(d)
		f, st := fs.find(a.File)
		fs.commits++
		if f != nil {
			f.committed = slices.Clone(f.data)
		}
		encode(e, &nfs3.CommitRes{Status: st, Wcc: nfs3.WccData{After: fs.post(f)}, Verf: fs.verf})
	}
}

func (fs *memFS) write(f *memFile, a *nfs3.WriteArgs) uint32 {
	if fs.wrote++; fs.wrote == fs.restartAfter || fs.restartEvery && fs.wrote%3 == 0 {
		fs.verf[7]++ // the server restarts and loses uncommitted data
		for _, g := range fs.files {
			if g.attr.Type == nfs3.Reg {
				g.data = slices.Clone(g.committed)
				g.attr.Size = uint64(len(g.data))
			}
		}
	}
	n := int(a.Count)
	if fs.shortWrite > 0 {
		n = min(n, fs.shortWrite)
	}
	end := int(a.Offset) + n
	if len(f.data) < end {
		f.resize(end)
	}
	at := int(a.Offset)
	for _, s := range a.Data {
		at += copy(f.data[at:end], s)
	}
	if a.Stable != nfs3.Unstable {
		fs.stableWrites++
		f.committed = slices.Clone(f.data)
	}
	return uint32(n)
}

func (fs *memFS) serveList(procedure uint32, d *xdr.Decoder, e *xdr.Encoder) {
	var a nfs3.ReaddirPlusArgs
	if procedure == nfs3.ProcReaddir {
		var p nfs3.ReaddirArgs
		p.Decode(d)
		a = nfs3.ReaddirPlusArgs{Dir: p.Dir, Cookie: p.Cookie, DirCount: p.Count, MaxCount: p.Count}
	} else {
		a.Decode(d)
	}
	f, st := fs.dir(a.Dir)
	if procedure == nfs3.ProcReaddirPlus && fs.noPlus {
		st = nfs3.ErrNotSupp
	}
	head := nfs3.ReaddirRes{Status: st, Attr: fs.post(f)}
	if st != nfs3.OK {
		encode(e, &head)
		return
	}
	var w nfs3.ListWriter
	w.Begin(e, &head, a.MaxCount, a.DirCount)
	for i := int(a.Cookie); i < len(f.names); i++ {
		id := f.entries[f.names[i]]
		n := nfs3.EntryPlus{Entry: nfs3.Entry{FileID: id, Name: []byte(f.names[i]), Cookie: uint64(i + 1)}, Attr: fs.post(fs.files[id])}
		if !fs.noHandles {
			n.Handle.Handle = handleOf(id)
		}
		if procedure == nfs3.ProcReaddir && !w.Add(&n.Entry) || procedure == nfs3.ProcReaddirPlus && !w.AddPlus(&n) {
			break
		}
	}
	_ = w.End(!fs.stuckList)
}

func (fs *memFS) serveNames(procedure uint32, d *xdr.Decoder, e *xdr.Encoder) {
	switch procedure {
	case nfs3.ProcLookup:
		var a nfs3.LookupArgs
		a.Decode(d)
		dir, st := fs.dir(a.Dir)
		res := nfs3.LookupRes{Status: st, DirAttr: fs.post(dir)}
		if st == nfs3.OK {
			id, ok := dir.entries[string(a.Name)]
			switch {
			case len(a.Name) > nfs3.MaxName:
				res.Status = nfs3.ErrNameTooLong
			case !ok:
				res.Status = nfs3.ErrNoEnt
			default:
				res.Object, res.Attr = handleOf(id), fs.post(fs.files[id])
			}
		}
		encode(e, &res)
	case nfs3.ProcCreate:
		var a nfs3.CreateArgs
		a.Decode(d)
		fs.create(&a.Where, nfs3.Reg, a.Attrs, a.Mode != nfs3.Unchecked, nil, e)
	case nfs3.ProcMkdir:
		var a nfs3.MkdirArgs
		a.Decode(d)
		fs.create(&a.Where, nfs3.Dir, a.Attrs, true, nil, e)
	case nfs3.ProcSymlink:
		var a nfs3.SymlinkArgs
		a.Decode(d)
		fs.create(&a.Where, nfs3.Lnk, a.Attrs, true, slices.Concat(a.Path...), e)
	case nfs3.ProcMknod:
		var a nfs3.MknodArgs
		a.Decode(d)
		fs.create(&a.Where, a.Type, a.Attrs, true, nil, e)
	case nfs3.ProcRemove, nfs3.ProcRmdir:
		var a nfs3.DirOpArgs
		a.Decode(d)
		dir, st := fs.dir(a.Dir)
		if st == nfs3.OK {
			if id, ok := dir.entries[string(a.Name)]; !ok {
				st = nfs3.ErrNoEnt
			} else if len(fs.files[id].names) > 0 {
				st = nfs3.ErrNotEmpty
			} else {
				dir.drop(string(a.Name))
			}
		}
		encode(e, &nfs3.WccRes{Status: st, Wcc: nfs3.WccData{After: fs.post(dir)}})
	case nfs3.ProcRename:
		var a nfs3.RenameArgs
		a.Decode(d)
		from, st := fs.dir(a.From.Dir)
		to, st2 := fs.dir(a.To.Dir)
		st = max(st, st2)
		if st == nfs3.OK {
			if id, ok := from.entries[string(a.From.Name)]; ok {
				from.drop(string(a.From.Name))
				to.add(string(a.To.Name), id)
			} else {
				st = nfs3.ErrNoEnt
			}
		}
		encode(e, &nfs3.RenameRes{Status: st})
	case nfs3.ProcLink:
		var a nfs3.LinkArgs
		a.Decode(d)
		f, st := fs.find(a.File)
		dir, st2 := fs.dir(a.Link.Dir)
		if st = max(st, st2); st == nfs3.OK {
			dir.add(string(a.Link.Name), f.attr.FileID)
			f.attr.Nlink++
		}
		encode(e, &nfs3.LinkRes{Status: st, Attr: fs.post(f)})
	}
}

func (fs *memFS) create(where *nfs3.DirOpArgs, t nfs3.Type, s nfs3.SetAttrs, guarded bool, data []byte, e *xdr.Encoder) {
	dir, st := fs.dir(where.Dir)
	res := nfs3.CreateRes{Status: st, Wcc: nfs3.WccData{After: fs.post(dir)}}
	if st == nfs3.OK {
		id, exists := dir.entries[string(where.Name)]
		switch {
		case exists && guarded:
			res.Status = nfs3.ErrExist
		case exists:
			fs.files[id].set(s)
		default:
			id = fs.make(t, s)
			fs.files[id].data, fs.files[id].attr.Size = data, uint64(len(data))
			dir.add(string(where.Name), id)
		}
		if res.Status == nfs3.OK && !fs.noHandles {
			res.Object.Handle = handleOf(id)
		}
		if res.Status == nfs3.OK {
			res.Attr = fs.post(fs.files[id])
		}
	}
	encode(e, &res)
}

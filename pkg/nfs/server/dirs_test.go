package server

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/xdr"
)

// page is the result of a READDIR or READDIRPLUS.
type page struct {
	t       testing.TB
	head    nfs3.ReaddirRes
	entries []nfs3.EntryPlus
	eof     bool
	plus    bool
	size    int // of the result without its status
	dirSize int // ids, names and cookies
}

func (p *page) Decode(d *xdr.Decoder) {
	left := d.Left()
	p.head.Decode(d)
	if p.head.Status != nfs3.OK {
		return
	}
	for {
		var e nfs3.EntryPlus
		more := false
		if p.plus {
			more = e.Decode(d)
		} else {
			more = e.Entry.Decode(d)
		}
		if !more {
			break
		}
		e.Name, e.Handle.Handle = bytes.Clone(e.Name), bytes.Clone(e.Handle.Handle)
		p.dirSize += 20 + xdr.Round(len(e.Name))
		p.entries = append(p.entries, e)
	}
	p.eof = d.Bool()
	p.size = left - d.Left() - 4
}

func (r *env) readdir(dir nfs3.Handle, cookie uint64, verf nfs3.Verifier, count uint32) *page {
	r.t.Helper()
	p := &page{t: r.t}
	r.do(nfs3.ProcReaddir, &nfs3.ReaddirArgs{Dir: dir, Cookie: cookie, Verf: verf, Count: count}, p)
	return p
}

func (r *env) readdirplus(dir nfs3.Handle, cookie uint64, verf nfs3.Verifier, dirCount, count uint32) *page {
	r.t.Helper()
	p := &page{t: r.t, plus: true}
	r.do(nfs3.ProcReaddirPlus, &nfs3.ReaddirPlusArgs{Dir: dir, Cookie: cookie, Verf: verf, DirCount: dirCount, MaxCount: count}, p)
	return p
}

func TestReaddir(t *testing.T) {
	r := newEnv(t, nil)
	r.must(os.Mkdir(r.path("dir"), 0o755))
	want := map[string]bool{".": true, "..": true}
	for i := range 40 {
		name := fmt.Sprintf("%d%s", i, strings.Repeat("x", i*6))
		r.put("dir/"+name, "")
		want[name] = true
	}
	dir := r.handle("dir")
	for _, plus := range []bool{false, true} {
		seen := map[string]bool{}
		var cookie uint64
		var verf nfs3.Verifier
		for n := 0; ; n++ {
			var p *page
			if plus {
				p = r.readdirplus(dir, cookie, verf, 300, 900)
			} else {
				p = r.readdir(dir, cookie, verf, 600)
			}
			if p.head.Status != nfs3.OK || !p.head.Attr.Present || len(p.entries) == 0 && !p.eof || n > 100 {
				t.Fatalf("plus %v, page %d: %+v, %d entries", plus, n, p.head, len(p.entries))
			}
			if limit := map[bool]int{false: 600, true: 900}[plus]; p.size > limit || plus && p.dirSize > 300 && len(p.entries) > 1 {
				t.Errorf("plus %v, page %d: %d bytes, %d of them names", plus, n, p.size, p.dirSize)
			}
			for _, e := range p.entries {
				name := string(e.Name)
				if seen[name] {
					t.Errorf("plus %v: %s came twice", plus, name)
				}
				seen[name] = true
				cookie = e.Cookie
				if st := r.lstat("dir/" + name); e.FileID != st.Ino {
					t.Errorf("%s: fileid %d, want %d", name, e.FileID, st.Ino)
				}
				if plus && name[0] != '.' {
					if e.Attr.Attr.FileID != e.FileID || !bytes.Equal(e.Handle.Handle, r.handleIn(dir, name)) {
						t.Errorf("%s: %+v", name, e)
					}
				}
			}
			verf = p.head.Verf
			if p.eof {
				break
			}
		}
		for name := range want {
			if !seen[name] {
				t.Errorf("plus %v: %s is missing", plus, name)
			}
		}
		if len(seen) != len(want) {
			t.Errorf("plus %v: %d entries, want %d", plus, len(seen), len(want))
		}
	}

	end := r.readdir(dir, 0, nfs3.Verifier{}, 1<<20)
	last := end.entries[len(end.entries)-1].Cookie
	if p := r.readdir(dir, last, end.head.Verf, 4096); p.head.Status != nfs3.OK || len(p.entries) != 0 || !p.eof {
		t.Errorf("behind the end: %+v", p)
	}
	if p := r.readdir(dir, last, nfs3.Verifier{}, 4096); p.head.Status != nfs3.OK {
		t.Errorf("without a verifier: %v", p.head.Status)
	}
	wantStatus(t, "another verifier", r.readdir(dir, last, nfs3.Verifier{1, 2, 3}, 4096).head.Status, nfs3.ErrBadCookie)
	wantStatus(t, "cookie beyond 2^63", r.readdir(dir, 1<<63+1, end.head.Verf, 4096).head.Status, nfs3.ErrBadCookie)
	wantStatus(t, "too small", r.readdir(dir, 0, nfs3.Verifier{}, 100).head.Status, nfs3.ErrTooSmall)
	wantStatus(t, "too small", r.readdirplus(dir, 0, nfs3.Verifier{}, 1<<20, 100).head.Status, nfs3.ErrTooSmall)
	wantStatus(t, "0 bytes", r.readdir(dir, 0, nfs3.Verifier{}, 0).head.Status, nfs3.ErrTooSmall)
	if p := r.readdirplus(dir, 0, nfs3.Verifier{}, 0, 4096); p.head.Status != nfs3.OK || len(p.entries) != 1 {
		t.Errorf("dircount 0: %v, %d entries", p.head.Status, len(p.entries))
	}
	if p := r.readdir(dir, 0, nfs3.Verifier{}, 1<<32-1); p.head.Status != nfs3.OK || !p.eof {
		t.Errorf("no limit: %v, eof %v", p.head.Status, p.eof)
	}
	r.put("file", "")
	wantStatus(t, "a file", r.readdir(r.handle("file"), 0, nfs3.Verifier{}, 4096).head.Status, nfs3.ErrNotDir)
	// The root's parent is hidden.
	for _, e := range r.readdir(r.root, 0, nfs3.Verifier{}, 4096).entries {
		if string(e.Name) == ".." && e.FileID != r.lstat(".").Ino {
			t.Errorf(".. of the root has fileid %d", e.FileID)
		}
	}
	if os.Geteuid() == 0 {
		r.must(unix.Chmod(r.path("dir"), 0o711))
		wantStatus(t, "without the right to read", r.as(1001, 1001).readdir(dir, 0, nfs3.Verifier{}, 4096).head.Status, nfs3.ErrAcces)
	}
}

// TestReaddirLarge lists a directory with two clients while every second file is removed: the
// others appear exactly once.
func TestReaddirLarge(t *testing.T) {
	const files = 5000
	r := newEnv(t, nil)
	r.must(os.Mkdir(r.path("dir"), 0o755))
	for i := range files {
		r.put(fmt.Sprintf("dir/file-%d", i), "")
	}
	dir := r.handle("dir")
	seen := [2]map[string]int{{}, {}}
	var cookie [2]uint64
	var verf [2]nfs3.Verifier
	var eof [2]bool
	for n := 0; !eof[0] || !eof[1]; n++ {
		for k := range 2 {
			if eof[k] {
				continue
			}
			var p *page
			if k == 0 {
				p = r.readdir(dir, cookie[k], verf[k], 1024)
			} else {
				p = r.readdirplus(dir, cookie[k], verf[k], 4096, 4096)
			}
			if p.head.Status != nfs3.OK {
				t.Fatalf("page %d: %v", n, p.head.Status)
			}
			for _, e := range p.entries {
				seen[k][string(e.Name)]++
				cookie[k] = e.Cookie
			}
			verf[k], eof[k] = p.head.Verf, p.eof
		}
		for i := n * 100; i < min(files, n*100+100); i += 2 {
			r.must(os.Remove(r.path(fmt.Sprintf("dir/file-%d", i))))
		}
	}
	for k := range 2 {
		for i := 1; i < files; i += 2 {
			if got := seen[k][fmt.Sprintf("file-%d", i)]; got != 1 {
				t.Fatalf("client %d: file-%d was seen %d times", k, i, got)
			}
		}
		for name, got := range seen[k] {
			if got != 1 {
				t.Errorf("client %d: %s was seen %d times", k, name, got)
			}
		}
	}
}

func TestFileSystem(t *testing.T) {
	r := newEnv(t, nil)
	var stat nfs3.FSStatRes
	r.do(nfs3.ProcFSStat, &nfs3.FSStatArgs{Object: r.root}, &stat)
	var s unix.Statfs_t
	r.must(unix.Statfs(r.dir, &s))
	if stat.Status != nfs3.OK || !stat.Attr.Present || stat.TotalBytes != s.Blocks*uint64(s.Bsize) || stat.TotalFiles != s.Files ||
		stat.AvailBytes > stat.FreeBytes || stat.FreeBytes > stat.TotalBytes || stat.AvailBytes == 0 {
		t.Errorf("FSSTAT: %+v, the file system has %+v", stat, s)
	}
	var info nfs3.FSInfoRes
	r.do(nfs3.ProcFSInfo, &nfs3.FSInfoArgs{Object: r.root}, &info)
	if info.Status != nfs3.OK || info.RTMax != 1<<20 || info.WTMax != 1<<20 || info.RTPref != 1<<20 || info.RTMult != uint32(s.Bsize) ||
		info.TimeDelta != (nfs3.Time{Nsec: 1}) || info.Properties != 0x1b {
		t.Errorf("FSINFO: %+v", info)
	}
	// The largest size can be set, one more cannot.
	r.put("file", "")
	if err := os.Truncate(r.path("file"), int64(info.MaxFileSize)); err != nil {
		t.Errorf("a file of maxfilesize, %d bytes: %v", info.MaxFileSize, err)
	}
	if info.MaxFileSize < 1<<63-1 && os.Truncate(r.path("file"), int64(info.MaxFileSize+1)) == nil {
		t.Errorf("a file can be longer than %d bytes", info.MaxFileSize)
	}
	var conf nfs3.PathConfRes
	r.do(nfs3.ProcPathConf, &nfs3.PathConfArgs{Object: r.root}, &conf)
	if conf.Status != nfs3.OK || conf.NameMax != 255 || conf.LinkMax < 127 || !conf.NoTrunc || !conf.ChownRestricted || conf.CaseInsensitive || !conf.CasePreserving {
		t.Errorf("PATHCONF: %+v", conf)
	}
	for _, proc := range []uint32{nfs3.ProcFSStat, nfs3.ProcFSInfo, nfs3.ProcPathConf} {
		var status statusOnly
		r.do(proc, &nfs3.HandleArgs{Object: []byte("x")}, &status)
		wantStatus(t, nfs3.ProcedureName(proc), nfs3.Status(status), nfs3.ErrBadHandle)
	}
}

// statusOnly is the first word of a result.
type statusOnly nfs3.Status

func (s *statusOnly) Decode(d *xdr.Decoder) {
	*s = statusOnly(d.Uint32())
	d.Skip(d.Left())
}

// TestReaddirPlusWithoutSearch: a caller that may list but not search a directory gets names alone.
func TestReaddirPlusWithoutSearch(t *testing.T) {
	needRoot(t)
	r := newEnv(t, nil)
	r.must(os.Mkdir(r.path("dir"), 0o755))
	r.put("dir/file", "content")
	dir := r.handle("dir")
	for _, mode := range []os.FileMode{0o744, 0o755} {
		r.must(os.Chmod(r.path("dir"), mode))
		p := r.as(1001, 1001).readdirplus(dir, 0, nfs3.Verifier{}, 4096, 4096)
		if p.head.Status != nfs3.OK || len(p.entries) != 3 || !p.eof {
			t.Fatalf("mode %o: %+v", mode, p)
		}
		for _, e := range p.entries {
			want := mode == 0o755 && string(e.Name) == "file"
			if e.Attr.Present != want || (e.Handle.Handle != nil) != want {
				t.Errorf("mode %o, %s: attributes %v, handle %x", mode, e.Name, e.Attr.Present, e.Handle.Handle)
			}
		}
	}
	r.must(os.Chmod(r.path("dir"), 0o711))
	wantStatus(t, "a directory that may only be searched", r.as(1001, 1001).readdirplus(dir, 0, nfs3.Verifier{}, 4096, 4096).head.Status, nfs3.ErrAcces)
}

package nfs3_test

import (
	"bytes"
	"io"
	"testing"

	mountxdr "github.com/buildbarn/go-xdr/pkg/protocols/mount"
	nfsxdr "github.com/buildbarn/go-xdr/pkg/protocols/nfsv3"
	"pgregory.net/rapid"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/nfs3/nfs3test"
)

// An implementation generated from RFC 1813's XDR reads our messages, and writes the same.
type oracle func(r io.Reader) (io.WriterTo, error)

type readerWriter[T any] interface {
	*T
	io.ReaderFrom
	io.WriterTo
}

func structOracle[T any, P readerWriter[T]]() oracle {
	return func(r io.Reader) (io.WriterTo, error) {
		m := P(new(T))
		_, err := m.ReadFrom(r)
		return m, err
	}
}

func unionOracle[T io.WriterTo](read func(io.Reader) (T, int64, error)) oracle {
	return func(r io.Reader) (io.WriterTo, error) {
		m, _, err := read(r)
		return m, err
	}
}

var oracles = map[string]oracle{
	"GETATTR/args":     structOracle[nfsxdr.Getattr3args](),
	"GETATTR/res":      unionOracle(nfsxdr.ReadGetattr3res),
	"SETATTR/args":     structOracle[nfsxdr.Setattr3args](),
	"SETATTR/res":      unionOracle(nfsxdr.ReadSetattr3res),
	"LOOKUP/args":      structOracle[nfsxdr.Lookup3args](),
	"LOOKUP/res":       unionOracle(nfsxdr.ReadLookup3res),
	"ACCESS/args":      structOracle[nfsxdr.Access3args](),
	"ACCESS/res":       unionOracle(nfsxdr.ReadAccess3res),
	"READLINK/args":    structOracle[nfsxdr.Readlink3args](),
	"READLINK/res":     unionOracle(nfsxdr.ReadReadlink3res),
	"READ/args":        structOracle[nfsxdr.Read3args](),
	"READ/res":         unionOracle(nfsxdr.ReadRead3res),
	"WRITE/args":       structOracle[nfsxdr.Write3args](),
	"WRITE/res":        unionOracle(nfsxdr.ReadWrite3res),
	"CREATE/args":      structOracle[nfsxdr.Create3args](),
	"CREATE/res":       unionOracle(nfsxdr.ReadCreate3res),
	"MKDIR/args":       structOracle[nfsxdr.Mkdir3args](),
	"MKDIR/res":        unionOracle(nfsxdr.ReadMkdir3res),
	"SYMLINK/args":     structOracle[nfsxdr.Symlink3args](),
	"SYMLINK/res":      unionOracle(nfsxdr.ReadSymlink3res),
	"MKNOD/args":       structOracle[nfsxdr.Mknod3args](),
	"MKNOD/res":        unionOracle(nfsxdr.ReadMknod3res),
	"REMOVE/args":      structOracle[nfsxdr.Remove3args](),
	"REMOVE/res":       unionOracle(nfsxdr.ReadRemove3res),
	"RMDIR/args":       structOracle[nfsxdr.Rmdir3args](),
	"RMDIR/res":        unionOracle(nfsxdr.ReadRmdir3res),
	"RENAME/args":      structOracle[nfsxdr.Rename3args](),
	"RENAME/res":       unionOracle(nfsxdr.ReadRename3res),
	"LINK/args":        structOracle[nfsxdr.Link3args](),
	"LINK/res":         unionOracle(nfsxdr.ReadLink3res),
	"READDIR/args":     structOracle[nfsxdr.Readdir3args](),
	"READDIR/res":      unionOracle(nfsxdr.ReadReaddir3res),
	"READDIRPLUS/args": structOracle[nfsxdr.Readdirplus3args](),
	"READDIRPLUS/res":  unionOracle(nfsxdr.ReadReaddirplus3res),
	"FSSTAT/args":      structOracle[nfsxdr.Fsstat3args](),
	"FSSTAT/res":       unionOracle(nfsxdr.ReadFsstat3res),
	"FSINFO/args":      structOracle[nfsxdr.Fsinfo3args](),
	"FSINFO/res":       unionOracle(nfsxdr.ReadFsinfo3res),
	"PATHCONF/args":    structOracle[nfsxdr.Pathconf3args](),
	"PATHCONF/res":     unionOracle(nfsxdr.ReadPathconf3res),
	"COMMIT/args":      structOracle[nfsxdr.Commit3args](),
	"COMMIT/res":       unionOracle(nfsxdr.ReadCommit3res),
	"MOUNT-MNT/res":    unionOracle(mountxdr.ReadMountres3),
}

func TestOracle(t *testing.T) {
	used := 0
	each(t, func(t *testing.T, name string, draw func(*rapid.T) nfs3test.Message, _ func() nfs3test.Message) {
		oracle := oracles[name]
		if oracle == nil {
			return
		}
		used++
		rapid.Check(t, func(t *rapid.T) {
			stream := nfs3test.Flatten(nfs3test.Encode(draw(t)))
			in := bytes.NewReader(stream)
			m, err := oracle(in)
			if err != nil {
				t.Fatalf("%v\n%x", err, stream)
			}
			if in.Len() > 0 {
				t.Fatalf("%d bytes left of\n%x", in.Len(), stream)
			}
			var out bytes.Buffer
			if _, err := m.WriteTo(&out); err != nil || !bytes.Equal(out.Bytes(), stream) {
				t.Fatalf("written again (%v) as\n%x\nwas\n%x", err, out.Bytes(), stream)
			}
		})
	})
	if used != len(oracles) {
		t.Fatalf("%d of %d oracles were asked", used, len(oracles))
	}
}

// Fields have the same meaning in both: equal bytes would not show two swapped fields.
func TestOracleFields(t *testing.T) {
	codecs := nfs3test.NFS
	rapid.Check(t, func(t *rapid.T) {
		res := codecs[nfs3.ProcGetAttr].DrawRes(t).(*nfs3.GetAttrRes)
		res.Status = nfs3.OK
		if res.Attr.Type == 0 {
			res.Attr.Type = nfs3.Reg
		}
		a := res.Attr
		m, _, err := nfsxdr.ReadGetattr3res(bytes.NewReader(nfs3test.Flatten(nfs3test.Encode(res))))
		if err != nil {
			t.Fatal(err)
		}
		x := m.(*nfsxdr.Getattr3res_NFS3_OK).Resok.ObjAttributes
		time := func(v nfsxdr.Nfstime3) nfs3.Time { return nfs3.Time{Sec: v.Seconds, Nsec: v.Nseconds} }
		got := nfs3.Attr{
			Type: nfs3.Type(x.Type), Mode: x.Mode, Nlink: x.Nlink, UID: x.Uid, GID: x.Gid, Size: x.Size, Used: x.Used,
			Rdev: nfs3.SpecData{Major: x.Rdev.Specdata1, Minor: x.Rdev.Specdata2}, FSID: x.Fsid, FileID: x.Fileid,
			Atime: time(x.Atime), Mtime: time(x.Mtime), Ctime: time(x.Ctime),
		}
		if got != a {
			t.Fatalf("attributes\n%+v\nwere read as\n%+v", a, got)
		}
	})
}

package client

import (
	"context"
	"iter"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/nfs4"
)

// Version is a version of NFS.
type Version int

// Versions.
const (
	V3  Version = iota // RFC 1813
	V42                // RFC 7862
)

// String returns the number, like "4.2".
func (v Version) String() string {
	if v == V42 {
		return "4.2"
	}
	return "3"
}

// Best returns the best version of the server at the end of cfg.Requester.
func Best(ctx context.Context, cfg Config) (Version, error) {
	has, err := probeVersion(ctx, callerOf(cfg, nfs4.Version))
	if has {
		return V42, nil
	}
	return V3, err
}

// Protocol has the operations of a version of NFS, in the types of version 3.
//
// A status other than OK is an error that names the operation: a nfs3.Status or nfs4.Status, which
// errors.Is compares with fs.ErrNotExist and the like. After NFS3ERR_JUKEBOX, NFS4ERR_DELAY and
// NFS4ERR_GRACE a call is repeated until its context ends.
type Protocol interface {
	// Null calls the procedure that does nothing.
	Null(ctx context.Context) error
	// Mount gets the handle of an exported directory, and the transfer sizes.
	Mount(ctx context.Context, path string) (nfs3.Handle, error)
	// Unmount ends the use of an exported directory.
	Unmount(ctx context.Context, path string) error

	// GetAttr returns a file's attributes.
	GetAttr(ctx context.Context, file nfs3.Handle) (nfs3.Attr, error)
	// SetAttr sets attributes of a file; Size truncates or extends it. With guard, it sets nothing
	// unless the file's ctime is *guard.
	SetAttr(ctx context.Context, file nfs3.Handle, attrs nfs3.SetAttrs, guard *nfs3.Time) error
	// Access returns the subset of the nfs3.Access bits that the caller has.
	Access(ctx context.Context, file nfs3.Handle, bits uint32) (granted uint32, err error)
	// FSStat returns the usage of a file system.
	FSStat(ctx context.Context, root nfs3.Handle) (nfs3.FSStatRes, error)
	// FSInfo returns the properties of a file system. Transfers use the sizes of the last result.
	FSInfo(ctx context.Context, root nfs3.Handle) (nfs3.FSInfoRes, error)
	// PathConf returns a file system's rules for names.
	PathConf(ctx context.Context, file nfs3.Handle) (nfs3.PathConfRes, error)
	// ReadSize and WriteSize are the sizes of a transfer's READs and WRITEs, in bytes: FSINFO's,
	// or 64 KiB before the first FSINFO.
	ReadSize() int
	WriteSize() int

	// Lookup finds a name in a directory.
	Lookup(ctx context.Context, dir nfs3.Handle, name string) (Object, error)
	// Create makes a file. Exclusive mode uses verf, and in version 3 no attrs.
	Create(ctx context.Context, dir nfs3.Handle, name string, mode nfs3.CreateMode, attrs nfs3.SetAttrs, verf nfs3.Verifier) (Object, error)
	// Mkdir makes a directory.
	Mkdir(ctx context.Context, dir nfs3.Handle, name string, attrs nfs3.SetAttrs) (Object, error)
	// Mknod makes a device, socket or FIFO.
	Mknod(ctx context.Context, dir nfs3.Handle, name string, t nfs3.Type, attrs nfs3.SetAttrs, spec nfs3.SpecData) (Object, error)
	// Symlink makes a symbolic link to target, at most nfs3.MaxPath bytes.
	Symlink(ctx context.Context, dir nfs3.Handle, name, target string, attrs nfs3.SetAttrs) (Object, error)
	// Readlink returns the target of a symbolic link.
	Readlink(ctx context.Context, link nfs3.Handle) (string, error)
	// Remove removes a name of an object that is no directory.
	Remove(ctx context.Context, dir nfs3.Handle, name string) error
	// Rmdir removes an empty directory.
	Rmdir(ctx context.Context, dir nfs3.Handle, name string) error
	// Rename moves a name, and replaces an object with the new name.
	Rename(ctx context.Context, fromDir nfs3.Handle, from string, toDir nfs3.Handle, to string) error
	// Link gives a file another name.
	Link(ctx context.Context, file, dir nfs3.Handle, name string) error
	// ReadDirPlus lists a directory with attributes and handles. "." and ".." are included if the
	// server has them. The list ends with the first error.
	ReadDirPlus(ctx context.Context, dir nfs3.Handle) iter.Seq2[DirEntry, error]

	// Open opens a regular file for the given accesses, ShareRead and ShareWrite.
	Open(ctx context.Context, file nfs3.Handle, access uint32) (File, error)
	// Commit makes count bytes at offset stable; 0 means up to the end. Data written under another
	// verifier than the returned one must be written again.
	Commit(ctx context.Context, file nfs3.Handle, offset uint64, count uint32) (nfs3.Verifier, error)

	// Copy copies up to count bytes between two open files within the server. The result has the
	// number of bytes, their stability, and the verifier. Version 3 has errors.ErrUnsupported.
	Copy(ctx context.Context, from File, fromOffset uint64, to File, toOffset, count uint64) (CopyResult, error)

	// Close ends the client's state on the server, of version 4 alone. Its calls must have ended.
	Close(ctx context.Context) error

	// NewNull makes a NULL.
	NewNull() (*Op, error)
	// NewGetAttr makes a GETATTR.
	NewGetAttr(file nfs3.Handle) (*Op, error)
	// NewSetAttr makes a SETATTR without a guard.
	NewSetAttr(file nfs3.Handle, attrs nfs3.SetAttrs) (*Op, error)
	// NewRename makes a RENAME.
	NewRename(fromDir nfs3.Handle, from string, toDir nfs3.Handle, to string) (*Op, error)
	// NewCreate makes a CREATE of mode GUARDED; SetName changes the name.
	NewCreate(dir nfs3.Handle, name string, attrs nfs3.SetAttrs) (*Op, error)
	// NewRemove makes a REMOVE; SetName changes the name.
	NewRemove(dir nfs3.Handle, name string) (*Op, error)
	// NewOpenRead makes OPEN, READ and CLOSE in one call of version 4. The READ is that of
	// File.NewRead. Version 3 has errors.ErrUnsupported.
	NewOpenRead(file nfs3.Handle, b *bufpool.Buf) (*Op, error)
	// NewCreateWrite makes OPEN of a new file, WRITE and CLOSE in one call of version 4; SetName
	// changes the name. The WRITE is that of File.NewWrite. Version 3 has errors.ErrUnsupported.
	NewCreateWrite(dir nfs3.Handle, name string, attrs nfs3.SetAttrs, b *bufpool.Buf, stable nfs3.Stability) (*Op, error)
}

// CopyResult is the result of Copy.
type CopyResult struct {
	Count     uint64
	Committed nfs3.Stability
	Verf      nfs3.Verifier
}

// Object is a result of Lookup or Create: handle and attributes, which a server may leave out.
type Object struct {
	Handle nfs3.Handle
	Attr   nfs3.PostOpAttr
}

// Bits of Protocol.Open.
const (
	ShareRead  = 1
	ShareWrite = 2
)

// File is an open file. Version 3 has no state of open files: there it is the handle alone.
type File interface {
	// NewRead makes a READ of len(b.B) bytes at offset 0, at most nfs3.MaxData; SetRange moves it.
	// The transport places the data in b if it can; see Result.Data. The caller releases b after
	// Free.
	NewRead(b *bufpool.Buf) (*Op, error)
	// NewWrite makes a WRITE of b.B at offset 0, at most nfs3.MaxData bytes; SetRange moves it. b
	// must be of the client's pool. The caller releases it after Free.
	NewWrite(b *bufpool.Buf, stable nfs3.Stability) (*Op, error)
	// Close closes the file. Its Ops must have ended.
	Close(ctx context.Context) error
}

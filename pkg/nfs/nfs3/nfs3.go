// Package nfs3 has the types and codecs of NFS version 3, of its MOUNT protocol (RFC 1813), and of
// NFSACL.
//
// Every procedure has an arguments and a results struct with Encode and Decode; those that are
// equal on the wire share one by an alias. Nothing here allocates on the hot procedures: handles,
// names and paths are views of the message's memory, valid as long as that is, and data of READ and
// WRITE stay where they lie (xdr.Decoder.Bulk and xdr.Encoder.Bulk). Decode overwrites its struct
// and reuses the memory of its slices, so a struct that is kept costs nothing. Failures stick to
// the decoder: ask its Err when Decode is done.
//
// Enumerations of arguments are checked while decoding, so that a handler sees only values that RFC
// 1813 names; counts and offsets are not, since the RFC has NFS errors for them.
package nfs3

// Program and Version number NFS version 3 (RFC 1813 section 2.1).
const (
	Program = 100003
	Version = 3
)

// Procedures of NFS version 3 (RFC 1813 section 3.3).
const (
	ProcNull        = 0
	ProcGetAttr     = 1
	ProcSetAttr     = 2
	ProcLookup      = 3
	ProcAccess      = 4
	ProcReadlink    = 5
	ProcRead        = 6
	ProcWrite       = 7
	ProcCreate      = 8
	ProcMkdir       = 9
	ProcSymlink     = 10
	ProcMknod       = 11
	ProcRemove      = 12
	ProcRmdir       = 13
	ProcRename      = 14
	ProcLink        = 15
	ProcReaddir     = 16
	ProcReaddirPlus = 17
	ProcFSStat      = 18
	ProcFSInfo      = 19
	ProcPathConf    = 20
	ProcCommit      = 21

	// Procedures is their number.
	Procedures = 22
)

// Limits, in bytes.
const (
	// MaxHandle bounds a file handle (RFC 1813 section 2.4, NFS3_FHSIZE).
	MaxHandle = 64
	// MaxName is the longest name of a directory entry in Linux's file systems. Longer ones up to
	// MaxPath are decoded, so that a server can answer NFS3ERR_NAMETOOLONG.
	MaxName = 255
	// MaxPath bounds the target of a symbolic link (RFC 1813 leaves it open; this is PATH_MAX).
	MaxPath = 4096
	// MaxData bounds the data of a READ or WRITE, and the list of a READDIR or READDIRPLUS.
	MaxData = 1 << 20
)

// Longest encodings of common parts, in bytes, for bounds of messages.
const (
	AttrLen       = 84
	PostOpAttrLen = 4 + AttrLen
	WccDataLen    = 4 + 24 + PostOpAttrLen
	HandleLen     = 4 + MaxHandle
	PostOpFHLen   = 4 + HandleLen
)

var procedureNames = [Procedures]string{
	"NULL", "GETATTR", "SETATTR", "LOOKUP", "ACCESS", "READLINK", "READ", "WRITE", "CREATE", "MKDIR", "SYMLINK",
	"MKNOD", "REMOVE", "RMDIR", "RENAME", "LINK", "READDIR", "READDIRPLUS", "FSSTAT", "FSINFO", "PATHCONF", "COMMIT",
}

// ProcedureName returns a procedure's name in RFC 1813, "" for an unknown one.
func ProcedureName(procedure uint32) string {
	if procedure >= Procedures {
		return ""
	}
	return procedureNames[procedure]
}

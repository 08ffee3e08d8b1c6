package schema

// procedure is the layout of a procedure's arguments and results. Those of NULL are void.
type procedure struct{ args, results shape }

// Limits, in bytes, where the protocols leave the length open; see also RFC 1813 section 2.4. A
// name may be longer than any file system allows: that is for the server to say.
const (
	maxName  = 4096
	maxPath  = 4096
	maxData  = 1 << 20
	handleV3 = 64
)

var (
	fh3      = opaque(Handle, handleV3)
	verf3    = fixed(8)
	cookie3  = u64
	name3    = text(Name, maxName)
	dirOp    = structure(fh3, name3)
	specData = fixed(8)

	// fattr3 up to its fileid, and behind.
	attrHead = fixed(5*4 + 4*8)
	attrTail = fixed(3 * 8)
	attr3    = structure(attrHead, u64, attrTail)
	// ownAttr3 is that of the object that the procedure is about.
	ownAttr3 = structure(attrHead, hyper(FileID), attrTail)

	postOp    = optional(PostOpAttr, attr3)
	ownPostOp = optional(PostOpAttr, ownAttr3)
	postOpFH  = optional(PostOpHandle, fh3)
	wcc       = structure(optional(0, fixed(24)), postOp)

	setTime   = union(0, void, on(2, fixed(8)))
	setAttrs3 = structure(
		optional(0, u32), // mode
		optional(0, u32), // uid
		optional(0, u32), // gid
		optional(0, u64), // size
		setTime,          // atime
		setTime,          // mtime
	)

	created = result(structure(postOpFH, postOp, wcc), wcc)
	changed = result(wcc, wcc)
)

// nfs3 is NFS version 3 (RFC 1813 section 3.3).
var nfs3 = []procedure{
	{}, // NULL
	{ // GETATTR
		args:    fh3,
		results: result(ownAttr3, void),
	},
	{ // SETATTR
		args:    structure(fh3, setAttrs3, optional(0, fixed(8))), // guard: ctime
		results: changed,
	},
	{ // LOOKUP
		args:    dirOp,
		results: result(structure(fh3, ownPostOp, postOp), postOp),
	},
	{ // ACCESS
		args:    structure(fh3, u32),
		results: result(structure(postOp, word(Access)), postOp),
	},
	{ // READLINK
		args:    fh3,
		results: result(structure(postOp, bulk(maxPath)), postOp),
	},
	{ // READ
		args:    structure(fh3, u64, word(Count)),                           // offset
		results: result(structure(postOp, u32, u32, bulk(maxData)), postOp), // count, eof
	},
	{ // WRITE
		args:    structure(fh3, u64, u32, u32, bulk(maxData)), // offset, count, stable
		results: result(structure(wcc, u32, u32, verf3), wcc), // count, committed
	},
	{ // CREATE
		args: structure(dirOp, only(0,
			on(0, setAttrs3), // UNCHECKED
			on(1, setAttrs3), // GUARDED
			on(2, verf3),     // EXCLUSIVE
		)),
		results: created,
	},
	{ // MKDIR
		args:    structure(dirOp, setAttrs3),
		results: created,
	},
	{ // SYMLINK
		args:    structure(dirOp, setAttrs3, bulk(maxPath)),
		results: created,
	},
	{ // MKNOD
		args: structure(dirOp, union(0, void,
			on(3, structure(setAttrs3, specData)), // NF3BLK
			on(4, structure(setAttrs3, specData)), // NF3CHR
			on(6, setAttrs3),                      // NF3SOCK
			on(7, setAttrs3),                      // NF3FIFO
		)),
		results: created,
	},
	{ // REMOVE
		args:    dirOp,
		results: changed,
	},
	{ // RMDIR
		args:    dirOp,
		results: changed,
	},
	{ // RENAME
		args:    structure(dirOp, dirOp),
		results: result(structure(wcc, wcc), structure(wcc, wcc)),
	},
	{ // LINK
		args:    structure(fh3, dirOp),
		results: result(structure(postOp, wcc), structure(postOp, wcc)),
	},
	{ // READDIR
		args: structure(fh3, cookie3, verf3, word(Count)),
		results: result(structure(
			ownPostOp,
			verf3,
			chain(Entry, structure(entryID, text(EntryName, maxName), cookie3)),
			u32, // eof
		), postOp),
	},
	{ // READDIRPLUS
		args: structure(fh3, cookie3, verf3, word(DirCount), word(Count)),
		results: result(structure(
			ownPostOp,
			verf3,
			chain(Entry, structure(entryID, text(EntryName, maxName), cookie3, postOp, postOpFH)),
			u32, // eof
		), postOp),
	},
	{ // FSSTAT
		args:    fh3,
		results: result(structure(postOp, fixed(6*8+4)), postOp),
	},
	{ // FSINFO
		args:    fh3,
		results: result(structure(postOp, noted(Sizes, 7*4), fixed(8+8+4)), postOp),
	},
	{ // PATHCONF
		args:    fh3,
		results: result(structure(postOp, fixed(6*4)), postOp),
	},
	{ // COMMIT
		args:    structure(fh3, u64, u32), // offset, count
		results: result(structure(wcc, verf3), wcc),
	},
}

// entryID is the fileid of an Entry.
var entryID = shape{{do: identify}}

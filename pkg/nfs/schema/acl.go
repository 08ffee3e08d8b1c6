package schema

// aclEntries bounds each of the two lists of a secattr (NFS_ACL_MAX_ENTRIES).
const aclEntries = 1024

// secattr is a POSIX access control list: a mask of the valid lists, and for the object's list and
// a directory's default list the length and entries of type, id and permissions.
var secattr = structure(
	u32,
	u32, upTo(aclEntries, fixed(12)),
	u32, upTo(aclEntries, fixed(12)),
)

// nfsacl is NFSACL version 3. It has no RFC; this is the common part of Solaris and Linux.
var nfsacl = []procedure{
	{}, // NULL
	{ // GETACL
		args:    structure(fh3, u32), // mask
		results: result(structure(postOp, secattr), postOp),
	},
	{ // SETACL
		args:    structure(fh3, secattr),
		results: result(postOp, postOp),
	},
}

package schema

// Limits of MOUNT (RFC 1813 section 5.1.4), in bytes and entries.
const (
	mountPath  = 1024
	mountName  = 255
	maxFlavors = 256
)

// mount is MOUNT version 3 (RFC 1813 section 5.2).
var mount = []procedure{
	{}, // NULL
	{ // MNT
		args:    opaque(Path, mountPath),
		results: result(structure(fh3, list(maxFlavors, u32)), void),
	},
	{ // DUMP
		// hostname, directory
		results: chain(Listed, structure(opaque(0, mountName), opaque(0, mountPath))),
	},
	{ // UMNT
		args: opaque(Path, mountPath),
	},
	{}, // UMNTALL
	{ // EXPORT
		// directory, groups
		results: chain(Listed, structure(opaque(0, mountPath), chain(0, opaque(0, mountName)))),
	},
}

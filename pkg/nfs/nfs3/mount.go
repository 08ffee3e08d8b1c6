package nfs3

import "sluice.dev/sluice/pkg/xdr"

// MountProgram and MountVersion number the MOUNT protocol that goes with NFS version 3 (RFC 1813
// appendix I).
const (
	MountProgram = 100005
	MountVersion = 3
)

// Procedures of MOUNT.
const (
	MountProcNull    = 0
	MountProcMnt     = 1
	MountProcDump    = 2
	MountProcUmnt    = 3
	MountProcUmntAll = 4
	MountProcExport  = 5

	// MountProcedures is their number.
	MountProcedures = 6
)

// Limits of MOUNT, in bytes and entries.
const (
	MaxMountPath = 1024
	MaxMountName = 255
	// MaxFlavors bounds a server's flavors of authentication.
	MaxFlavors = 32
	// MaxMountList bounds the decoded entries of DUMP and EXPORT, and the groups of an export.
	MaxMountList = 4096
)

var mountProcedureNames = [MountProcedures]string{"NULL", "MNT", "DUMP", "UMNT", "UMNTALL", "EXPORT"}

// MountProcedureName returns a procedure's name in RFC 1813, "" for an unknown one.
func MountProcedureName(procedure uint32) string {
	if procedure >= MountProcedures {
		return ""
	}
	return mountProcedureNames[procedure]
}

// MountArgs are the arguments of MNT and UMNT.
type MountArgs struct{ Path []byte }

// Encode writes a.
func (a *MountArgs) Encode(e *xdr.Encoder) { e.Opaque(a.Path) }

// Decode reads a.
func (a *MountArgs) Decode(d *xdr.Decoder) { a.Path = d.Opaque(MaxMountPath) }

// MountRes is the result of MNT. Flavors are those of pkg/oncrpc, in the server's order of
// preference.
type MountRes struct {
	Status  Status
	Handle  Handle
	Flavors []uint32
}

// Encode writes r.
func (r *MountRes) Encode(e *xdr.Encoder) {
	e.Uint32(uint32(r.Status))
	if r.Status != OK {
		return
	}
	r.Handle.Encode(e)
	e.Uint32(uint32(len(r.Flavors)))
	for _, f := range r.Flavors {
		e.Uint32(f)
	}
}

// Decode reads r.
func (r *MountRes) Decode(d *xdr.Decoder) {
	*r = MountRes{Status: Status(d.Uint32()), Flavors: r.Flavors[:0]}
	if r.Status != OK {
		return
	}
	r.Handle.Decode(d)
	n := d.Uint32()
	if n > MaxFlavors {
		d.Fail("MNT offers %d flavors of authentication, at most %d are understood", n, MaxFlavors)
		return
	}
	for ; n > 0 && d.Err() == nil; n-- {
		r.Flavors = append(r.Flavors, d.Uint32())
	}
}

// MountEntry is an entry of DUMP: a client and its mounted directory.
type MountEntry struct{ Host, Dir []byte }

// DumpRes is the result of DUMP.
type DumpRes struct{ Mounts []MountEntry }

// Encode writes r.
func (r *DumpRes) Encode(e *xdr.Encoder) {
	for i := range r.Mounts {
		e.Bool(true)
		e.Opaque(r.Mounts[i].Host)
		e.Opaque(r.Mounts[i].Dir)
	}
	e.Bool(false)
}

// Decode reads r.
func (r *DumpRes) Decode(d *xdr.Decoder) {
	r.Mounts = r.Mounts[:0]
	for d.Bool() {
		if len(r.Mounts) == MaxMountList {
			d.Fail("DUMP has more than %d entries", MaxMountList)
			return
		}
		r.Mounts = append(r.Mounts, MountEntry{d.Opaque(MaxMountName), d.Opaque(MaxMountPath)})
	}
}

// Export is an entry of EXPORT: a directory and the groups that may mount it; without groups
// everybody may.
type Export struct {
	Dir    []byte
	Groups [][]byte
}

// ExportRes is the result of EXPORT.
type ExportRes struct{ Exports []Export }

// Encode writes r.
func (r *ExportRes) Encode(e *xdr.Encoder) {
	for i := range r.Exports {
		x := &r.Exports[i]
		e.Bool(true)
		e.Opaque(x.Dir)
		for _, g := range x.Groups {
			e.Bool(true)
			e.Opaque(g)
		}
		e.Bool(false)
	}
	e.Bool(false)
}

// Decode reads r.
func (r *ExportRes) Decode(d *xdr.Decoder) {
	r.Exports = r.Exports[:0]
	for n := 0; d.Bool(); n++ {
		x := Export{Dir: d.Opaque(MaxMountPath)}
		for ; d.Bool(); n++ {
			if n >= MaxMountList {
				break
			}
			x.Groups = append(x.Groups, d.Opaque(MaxMountName))
		}
		if n >= MaxMountList {
			d.Fail("EXPORT has more than %d entries", MaxMountList)
			return
		}
		r.Exports = append(r.Exports, x)
	}
}

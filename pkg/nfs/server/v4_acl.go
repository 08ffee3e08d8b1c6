package server

import (
	"bytes"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/nfs/vfs"
	"sluice.dev/sluice/pkg/xdr"
)

// Access control lists of version 4 are mapped to and from POSIX ones in the way of Linux's server:
// the list that a client reads grants the same as the POSIX list, and a list that it sets becomes
// the POSIX list that grants the same, or less where POSIX cannot say it.

// Masks of version 4 for the permissions of POSIX.
const (
	aceAnyone = nfs4.ACEReadAttributes | nfs4.ACEReadACL | nfs4.ACESynchronize
	aceOwner  = nfs4.ACEWriteAttributes | nfs4.ACEWriteACL
	aceWrite  = nfs4.ACEWriteData | nfs4.ACEAppendData

	aceInheritance = nfs4.ACEFileInherit | nfs4.ACEDirectoryInherit | nfs4.ACEInheritOnly
	aceFlags       = aceInheritance | nfs4.ACEIdentifierGroup
)

const permissions = vfs.MayRead | vfs.MayWrite | vfs.MayExec

var (
	whoOwner    = []byte("OWNER@")
	whoGroup    = []byte("GROUP@")
	whoEveryone = []byte("EVERYONE@")
)

// aceBits converts permissions of POSIX.
func aceBits(perm uint16, dir bool) (mask uint32) {
	if perm&vfs.MayRead != 0 {
		mask |= nfs4.ACEReadData
	}
	if perm&vfs.MayWrite != 0 {
		mask |= aceWrite
		if dir {
			mask |= nfs4.ACEDeleteChild
		}
	}
	if perm&vfs.MayExec != 0 {
		mask |= nfs4.ACEExecute
	}
	return mask
}

// permBits is the reverse of aceBits: a permission takes all of its bits.
func permBits(mask uint32, dir bool) (perm uint16) {
	for _, bit := range [...]uint16{vfs.MayRead, vfs.MayWrite, vfs.MayExec} {
		if need := aceBits(bit, dir); mask&need == need {
			perm |= bit
		}
	}
	return perm
}

// aclWriter encodes entries.
type aclWriter struct {
	c     *compound
	e     *xdr.Encoder
	dir   bool
	flags uint32 // of all entries
	count uint32
}

// put writes an entry for a tag of POSIX.
func (w *aclWriter) put(kind uint32, entry *vfs.ACLEntry, mask uint32) {
	flags := w.flags
	if entry.Tag == vfs.ACLGroupObj || entry.Tag == vfs.ACLGroup {
		flags |= nfs4.ACEIdentifierGroup
	}
	w.e.Uint32(kind)
	w.e.Uint32(flags)
	w.e.Uint32(mask)
	switch entry.Tag {
	case vfs.ACLUserObj:
		w.e.Opaque(whoOwner)
	case vfs.ACLGroupObj:
		w.e.Opaque(whoGroup)
	case vfs.ACLOther:
		w.e.Opaque(whoEveryone)
	default:
		w.c.putOwner(w.e, entry.ID, entry.Tag == vfs.ACLGroup)
	}
	w.count++
}

func (w *aclWriter) allow(entry *vfs.ACLEntry, perm uint16) {
	mask := uint32(aceAnyone) | aceBits(perm, w.dir)
	if entry.Tag == vfs.ACLUserObj {
		mask |= aceOwner
	}
	w.put(nfs4.ACEAllow, entry, mask)
}

// deny denies permissions that the entry lacks and later entries grant.
func (w *aclWriter) deny(entry *vfs.ACLEntry, perm, later uint16) {
	if missing := later &^ perm & permissions; missing != 0 {
		w.put(nfs4.ACEDeny, entry, aceBits(missing, w.dir))
	}
}

// write converts a POSIX list.
func (w *aclWriter) write(list []vfs.ACLEntry) {
	mask := uint16(permissions)
	for i := range list {
		if list[i].Tag == vfs.ACLMask {
			mask = list[i].Perm
		}
	}
	effective := func(entry *vfs.ACLEntry) uint16 {
		switch entry.Tag {
		case vfs.ACLUser, vfs.ACLGroupObj, vfs.ACLGroup:
			return entry.Perm & mask
		}
		return entry.Perm
	}
	var users, groups, other uint16 // those that the entries of the kind grant together
	for i := range list {
		switch perm := effective(&list[i]); list[i].Tag {
		case vfs.ACLUser:
			users |= perm
		case vfs.ACLGroupObj, vfs.ACLGroup:
			groups |= perm
		case vfs.ACLOther:
			other = perm
		}
	}
	each := func(f func(entry *vfs.ACLEntry, perm uint16), tags vfs.ACLTag) {
		for i := range list {
			if list[i].Tag&tags != 0 {
				f(&list[i], effective(&list[i]))
			}
		}
	}
	each(func(entry *vfs.ACLEntry, perm uint16) {
		w.deny(entry, perm, users|groups|other)
		w.allow(entry, perm)
	}, vfs.ACLUserObj)
	each(func(entry *vfs.ACLEntry, perm uint16) {
		w.deny(entry, perm, groups|other)
		w.allow(entry, perm)
	}, vfs.ACLUser)
	// A user may be in several groups, so all groups are allowed before any is denied.
	each(w.allow, vfs.ACLGroupObj|vfs.ACLGroup)
	each(func(entry *vfs.ACLEntry, perm uint16) { w.deny(entry, perm, other) }, vfs.ACLGroupObj|vfs.ACLGroup)
	each(w.allow, vfs.ACLOther)
}

// modeACL is the list that a mode stands for.
func modeACL(mode uint32) []vfs.ACLEntry {
	return []vfs.ACLEntry{
		{Tag: vfs.ACLUserObj, Perm: uint16(mode >> 6 & 7)},
		{Tag: vfs.ACLGroupObj, Perm: uint16(mode >> 3 & 7)},
		{Tag: vfs.ACLOther, Perm: uint16(mode & 7)},
	}
}

// putACL encodes the attribute acl.
func (c *compound) putACL(e *xdr.Encoder, src *attrSource) nfs4.Status {
	access, err := src.node.ACL(false)
	if err != nil {
		return status4(err)
	}
	if access == nil {
		access = modeACL(src.st.Mode)
	}
	inherited, err := src.node.ACL(true)
	if err != nil {
		return status4(err)
	}
	at := len(e.Bytes())
	e.Uint32(0)
	w := aclWriter{c: c, e: e, dir: src.node.IsDir()}
	w.write(access)
	w.flags = aceInheritance
	w.write(inherited)
	e.PutUint32(at, w.count)
	return nfs4.OK
}

// verdict is the bits that entries have allowed and denied so far. The first entry with a bit
// decides.
type verdict struct{ allowed, denied uint32 }

func (v *verdict) apply(kind, mask uint32) {
	if kind == nfs4.ACEAllow {
		v.allowed |= mask &^ v.denied
	} else {
		v.denied |= mask &^ v.allowed
	}
}

// aclReader makes a POSIX list of entries of version 4.
type aclReader struct {
	used            bool
	owner, group    verdict
	other, everyone verdict
	ids             []verdictOf
}

type verdictOf struct {
	tag vfs.ACLTag
	id  uint32
	verdict
}

// of returns the verdict of a user or group, which begins as that of everyone so far.
func (r *aclReader) of(tag vfs.ACLTag, id uint32) *verdict {
	for i := range r.ids {
		if r.ids[i].tag == tag && r.ids[i].id == id {
			return &r.ids[i].verdict
		}
	}
	r.ids = append(r.ids, verdictOf{tag, id, r.everyone})
	return &r.ids[len(r.ids)-1].verdict
}

// all applies an entry to users, to groups, or to both.
func (r *aclReader) all(tags vfs.ACLTag, kind, mask uint32) {
	for i := range r.ids {
		if r.ids[i].tag&tags != 0 {
			r.ids[i].apply(kind, mask)
		}
	}
}

// add applies an entry. A denial of a user or group applies to all whom POSIX may count as that
// one: the owner may be the user, and any user may be in the group.
func (r *aclReader) add(tag vfs.ACLTag, id uint32, kind, mask uint32) {
	r.used = true
	switch tag {
	case vfs.ACLUserObj:
		r.owner.apply(kind, mask)
	case vfs.ACLUser:
		v := r.of(tag, id)
		if v.apply(kind, mask); kind == nfs4.ACEDeny {
			r.owner.apply(kind, v.denied)
		}
	case vfs.ACLGroupObj, vfs.ACLGroup:
		v := &r.group
		if tag == vfs.ACLGroup {
			v = r.of(tag, id)
		}
		if v.apply(kind, mask); kind == nfs4.ACEDeny {
			denied := v.denied
			r.owner.apply(kind, denied)
			r.group.apply(kind, denied)
			r.everyone.apply(kind, denied)
			r.all(vfs.ACLUser|vfs.ACLGroup, kind, denied)
		}
	case vfs.ACLOther:
		for _, v := range [...]*verdict{&r.owner, &r.group, &r.other, &r.everyone} {
			v.apply(kind, mask)
		}
		r.all(vfs.ACLUser|vfs.ACLGroup, kind, mask)
	}
}

// list returns the POSIX list; nil without entries.
func (r *aclReader) list(dir bool) (list []vfs.ACLEntry) {
	if !r.used {
		return nil
	}
	group := permBits(r.group.allowed, dir)
	list = append(list, vfs.ACLEntry{Tag: vfs.ACLUserObj, Perm: permBits(r.owner.allowed, dir)},
		vfs.ACLEntry{Tag: vfs.ACLGroupObj, Perm: group}, vfs.ACLEntry{Tag: vfs.ACLOther, Perm: permBits(r.other.allowed, dir)})
	mask := group
	for i := range r.ids {
		perm := permBits(r.ids[i].allowed, dir)
		mask |= perm
		list = append(list, vfs.ACLEntry{Tag: r.ids[i].tag, Perm: perm, ID: r.ids[i].id})
	}
	if len(r.ids) > 0 {
		list = append(list, vfs.ACLEntry{Tag: vfs.ACLMask, Perm: mask})
	}
	return list
}

// readACL converts the value of the attribute acl to a list, and to the default list of a
// directory.
func (c *compound) readACL(aces []nfs4.ACE, dir bool) (access, inherited []vfs.ACLEntry, st nfs4.Status) {
	var own, next aclReader
	for i := range aces {
		a := &aces[i]
		switch {
		case a.Type != nfs4.ACEAllow && a.Type != nfs4.ACEDeny:
			return nil, nil, nfs4.ErrAttrNotSupp
		case a.Flags&^aceFlags != 0, a.Flags&aceInheritance != 0 && !dir:
			return nil, nil, nfs4.ErrInval
		}
		tag, id, st := c.readWho(a)
		if st != nfs4.OK {
			return nil, nil, st
		}
		if a.Flags&(nfs4.ACEFileInherit|nfs4.ACEDirectoryInherit) != 0 {
			next.add(tag, id, a.Type, a.Mask)
		}
		if a.Flags&nfs4.ACEInheritOnly == 0 {
			own.add(tag, id, a.Type, a.Mask)
		}
	}
	own.used = true // without entries nobody has access
	return own.list(dir), next.list(dir), nfs4.OK
}

func (c *compound) readWho(a *nfs4.ACE) (tag vfs.ACLTag, id uint32, st nfs4.Status) {
	switch {
	case bytes.Equal(a.Who, whoOwner):
		return vfs.ACLUserObj, 0, nfs4.OK
	case bytes.Equal(a.Who, whoGroup):
		return vfs.ACLGroupObj, 0, nfs4.OK
	case bytes.Equal(a.Who, whoEveryone):
		return vfs.ACLOther, 0, nfs4.OK
	case a.Flags&nfs4.ACEIdentifierGroup != 0:
		id, st = c.ownerID(a.Who, true)
		return vfs.ACLGroup, id, st
	}
	id, st = c.ownerID(a.Who, false)
	return vfs.ACLUser, id, st
}

// setACL sets the access control list of the current object, and the default list of a directory.
func (c *compound) setACL(aces []nfs4.ACE) nfs4.Status {
	n, dir := c.cur, c.cur.IsDir()
	if n.Kind() == unix.S_IFLNK {
		return nfs4.ErrAttrNotSupp
	}
	access, inherited, st := c.readACL(aces, dir)
	if st != nfs4.OK {
		return st
	}
	err := c.s.fs.SetACL(n, false, access, &c.cred, &c.wcc2)
	if err == nil && dir {
		err = c.s.fs.SetACL(n, true, inherited, &c.cred, &c.wcc2)
	}
	if err == nil {
		err = n.Sync(false)
	}
	return status4(err)
}

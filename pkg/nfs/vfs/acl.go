package vfs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// ACLTag is the kind of an entry of a POSIX access control list (acl(5)).
type ACLTag uint16

// Tags, as the kernel numbers them.
const (
	ACLUserObj  ACLTag = 0x01
	ACLUser     ACLTag = 0x02
	ACLGroupObj ACLTag = 0x04
	ACLGroup    ACLTag = 0x08
	ACLMask     ACLTag = 0x10
	ACLOther    ACLTag = 0x20
)

// ACLEntry is an entry of a POSIX access control list. Perm has MayRead, MayWrite and MayExec; ID
// is for ACLUser and ACLGroup.
type ACLEntry struct {
	Tag  ACLTag
	Perm uint16
	ID   uint32
}

// MaxACL bounds the entries of a list, as a value of 64 KiB does.
const MaxACL = (64<<10 - aclHeadLen) / aclEntryLen

// The kernel's form of a list (linux/posix_acl_xattr.h).
const (
	accessACL   = "system.posix_acl_access"
	defaultACL  = "system.posix_acl_default"
	aclVersion  = 2
	aclHeadLen  = 4
	aclEntryLen = 8
	aclNoID     = ^uint32(0)
)

func aclName(inherited bool) string {
	if inherited {
		return defaultACL
	}
	return accessACL
}

// ACL returns the object's access control list, or with inherited the default list of a directory.
// Without one the list is nil. EOPNOTSUPP: the file system has none.
func (n *Node) ACL(inherited bool) ([]ACLEntry, error) {
	if inherited && !n.IsDir() || n.kind == unix.S_IFLNK {
		return nil, nil
	}
	path, name := n.procPath(), aclName(inherited)
	b := make([]byte, 256)
	for {
		size, err := unix.Getxattr(path, name, b)
		switch {
		case err == nil:
			return parseACL(b[:size])
		case errors.Is(err, unix.ENODATA):
			return nil, nil
		case !errors.Is(err, unix.ERANGE) || len(b) >= MaxXattr:
			return nil, err
		}
		b = make([]byte, MaxXattr)
	}
}

// HasDefaultACL reports whether new entries of a directory inherit an access control list.
func (n *Node) HasDefaultACL() bool {
	list, err := n.ACL(true)
	return err == nil && len(list) > 0
}

// SetACL replaces a list as the caller. An empty default list is removed. The object is not synced.
func (fs *FS) SetACL(n *Node, inherited bool, list []ACLEntry, c *Cred, w *Wcc) error {
	path, name := n.procPath(), aclName(inherited)
	value := appendACL(nil, list)
	return fs.changing(n, c, w, func() error {
		if len(list) > 0 {
			return unix.Setxattr(path, name, value, 0)
		}
		if err := unix.Removexattr(path, name); !errors.Is(err, unix.ENODATA) {
			return err
		}
		return nil
	})
}

func parseACL(b []byte) ([]ACLEntry, error) {
	if len(b) < aclHeadLen || binary.LittleEndian.Uint32(b) != aclVersion || (len(b)-aclHeadLen)%aclEntryLen != 0 {
		return nil, fmt.Errorf("an access control list of %d bytes: %w", len(b), unix.EIO)
	}
	var list []ACLEntry
	for b = b[aclHeadLen:]; len(b) > 0; b = b[aclEntryLen:] {
		list = append(list, ACLEntry{
			Tag:  ACLTag(binary.LittleEndian.Uint16(b)),
			Perm: binary.LittleEndian.Uint16(b[2:]),
			ID:   binary.LittleEndian.Uint32(b[4:]),
		})
	}
	return list, nil
}

// appendACL appends the kernel's form of a list, in the order that it wants.
func appendACL(b []byte, list []ACLEntry) []byte {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(x, y ACLEntry) int {
		if x.Tag != y.Tag {
			return int(x.Tag) - int(y.Tag)
		}
		return int(int64(x.ID) - int64(y.ID))
	})
	b = binary.LittleEndian.AppendUint32(b, aclVersion)
	for _, e := range list {
		if e.Tag != ACLUser && e.Tag != ACLGroup {
			e.ID = aclNoID
		}
		b = binary.LittleEndian.AppendUint16(b, uint16(e.Tag))
		b = binary.LittleEndian.AppendUint16(b, e.Perm)
		b = binary.LittleEndian.AppendUint32(b, e.ID)
	}
	return b
}

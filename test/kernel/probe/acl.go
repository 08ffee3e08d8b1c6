package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// hasACLs reports whether the mount has POSIX access control lists: version 3 has, by NFSACL.
func hasACLs() bool { return os.Getenv("VERS") == "3" && !lacks("acl") }

// Extended attributes of access control lists, their version, and the tags of their entries
// (linux/posix_acl_xattr.h).
const (
	accessACL  = "system.posix_acl_access"
	defaultACL = "system.posix_acl_default"
	aclVersion = 2

	aclUserObj, aclUser, aclGroupObj, aclGroup, aclMask, aclOther = 1, 2, 4, 8, 16, 32
)

type aclEntry struct {
	tag, perm uint16
	id        uint32
}

// aclOf returns a list for a user and a group, with its entries in the kernel's order. Permissions
// are those of chmod(1): 6 is rw.
func aclOf(owner, user, group, mask uint16) []aclEntry {
	return []aclEntry{
		{aclUserObj, owner, noID}, {aclUser, user, 1000}, {aclGroupObj, 0, noID}, {aclGroup, group, 2000}, {aclMask, mask, noID}, {aclOther, 0, noID},
	}
}

const noID = ^uint32(0)

func setACL(file, name string, list []aclEntry) error {
	b := binary.LittleEndian.AppendUint32(nil, aclVersion)
	for _, e := range list {
		b = binary.LittleEndian.AppendUint16(b, e.tag)
		b = binary.LittleEndian.AppendUint16(b, e.perm)
		b = binary.LittleEndian.AppendUint32(b, e.id)
	}
	return unix.Setxattr(file, name, b, 0)
}

func (t *T) hasACL(file, name string, want []aclEntry) {
	b := xattr(t, file, name)
	if len(b) < 4 || binary.LittleEndian.Uint32(b) != aclVersion {
		t.fail(1, "%s of %s is %x", name, file, b)
	}
	var got []aclEntry
	for b = b[4:]; len(b) >= 8; b = b[8:] {
		got = append(got, aclEntry{binary.LittleEndian.Uint16(b), binary.LittleEndian.Uint16(b[2:]), binary.LittleEndian.Uint32(b[4:])})
	}
	if !slices.Equal(got, want) {
		t.fail(1, "%s of %s is %v, must be %v", name, file, got, want)
	}
}

func (t *T) lacksACL(file, name string) {
	if _, err := unix.Getxattr(file, name, make([]byte, 1<<16)); !errors.Is(err, unix.ENODATA) {
		t.fail(1, "%s of %s: %v, must be %v", name, file, err, unix.ENODATA)
	}
}

func appendTo(name string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString("+")
	return errors.Join(err, f.Close())
}

// posixACL sets lists and reads them back. The server enforces them.
func posixACL(t *T) {
	t.write("f", "text")
	t.ok(os.Chmod("f", 0o600))
	t.lacksACL("f", accessACL)
	t.as(1000, func() { t.refused(setACL("f", accessACL, aclOf(6, 6, 6, 6)), unix.EPERM) })
	t.ok(setACL("f", accessACL, aclOf(6, 4, 6, 6)))
	t.hasACL("f", accessACL, aclOf(6, 4, 6, 6))
	t.equal("mode", t.stat("f").Mode&0o777, uint32(0o660))
	t.as(1000, func() {
		t.ok(read("f"))
		t.refused(appendTo("f"), unix.EACCES)
	})
	t.as(1001, func() { t.ok(appendTo("f")) }, 2000)
	t.as(1001, func() { t.refused(read("f"), unix.EACCES) })
	t.holds("f", "text+")

	t.ok(os.Chmod("f", 0o640)) // the mask
	t.hasACL("f", accessACL, aclOf(6, 4, 6, 4))
	t.as(1001, func() {
		t.ok(read("f"))
		t.refused(appendTo("f"), unix.EACCES)
	}, 2000)

	t.ok(unix.Removexattr("f", accessACL))
	t.lacksACL("f", accessACL)
	t.as(1000, func() { t.refused(read("f"), unix.EACCES) })
}

// inheritedACL makes entries of a directory that has a default list.
func inheritedACL(t *T) {
	t.ok(os.Mkdir("d", 0o755))
	t.refused(setACL("d", defaultACL, aclOf(7, 7, 5, 7)[:3]), unix.EINVAL)
	t.ok(setACL("d", defaultACL, aclOf(7, 6, 5, 7)))
	t.hasACL("d", defaultACL, aclOf(7, 6, 5, 7))
	t.lacksACL("d", accessACL)
	t.ok(create("d/f", 0o666))
	t.hasACL("d/f", accessACL, aclOf(6, 6, 5, 6))
	t.as(1000, func() { t.ok(appendTo("d/f")) })
	t.as(1001, func() { t.refused(read("d/f"), unix.EACCES) })
	t.as(1001, func() {
		t.ok(read("d/f"))
		t.refused(appendTo("d/f"), unix.EACCES)
	}, 2000)
	t.ok(os.Mkdir("d/d", 0o777))
	t.hasACL("d/d", accessACL, aclOf(7, 6, 5, 7))
	t.hasACL("d/d", defaultACL, aclOf(7, 6, 5, 7))
	t.ok(unix.Removexattr("d", defaultACL))
	t.lacksACL("d", defaultACL)
	t.ok(create("d/g", 0o644))
	t.lacksACL("d/g", accessACL)
}

// longACL is a list longer than any inline message.
func longACL(t *T) {
	list := []aclEntry{{aclUserObj, 6, noID}}
	for i := range uint32(400) {
		list = append(list, aclEntry{aclUser, 4, 3000 + i})
	}
	list = append(list, aclEntry{aclGroupObj, 0, noID}, aclEntry{aclMask, 4, noID}, aclEntry{aclOther, 0, noID})
	t.write("f", "text")
	if err := setACL("f", accessACL, list); err != nil {
		t.ok(fmt.Errorf("a list of %d entries: %w", len(list), err))
	}
	t.hasACL("f", accessACL, list)
	t.as(3399, func() { t.ok(read("f")) })
	t.as(3400, func() { t.refused(read("f"), unix.EACCES) })
}

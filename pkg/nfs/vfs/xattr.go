package vfs

import (
	"bytes"
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

// MaxXattr is the longest value of an extended attribute, in bytes (XATTR_SIZE_MAX).
const MaxXattr = 64 << 10

// userXattr is the only namespace of extended attributes that callers reach (RFC 8276 section 8.2).
const userXattr = "user."

// maxXattrName is the longest name with its namespace, in bytes (XATTR_NAME_MAX).
const maxXattrName = 255

// xattrName returns the kernel's name of an extended attribute.
func xattrName(name []byte) (string, error) {
	switch {
	case len(name) == 0 || bytes.IndexByte(name, 0) >= 0:
		return "", unix.EINVAL
	case len(name) > maxXattrName-len(userXattr):
		return "", unix.ENAMETOOLONG
	}
	return userXattr + string(name), nil
}

// GetXattr reads an extended attribute of a file or directory into b, as the caller. ENODATA: there
// is none. ERANGE: b is too short; with an empty b the result is the length.
func (fs *FS) GetXattr(n *Node, name, b []byte, c *Cred) (int, error) {
	attr, err := xattrName(name)
	if err != nil {
		return 0, err
	}
	entered, err := fs.ids.enter(c)
	if err != nil {
		return 0, err
	}
	defer fs.ids.leave(entered)
	return unix.Getxattr(n.procPath(), attr, b)
}

// SetXattr sets an extended attribute as the caller. flags is 0, unix.XATTR_CREATE (EEXIST if there
// is one) or unix.XATTR_REPLACE (ENODATA if there is none).
func (fs *FS) SetXattr(n *Node, name, value []byte, flags int, c *Cred, w *Wcc) error {
	attr, err := xattrName(name)
	if err == nil && len(value) > MaxXattr {
		err = unix.E2BIG
	}
	if err != nil {
		return err
	}
	return fs.changingXattr(n, c, w, func() error { return unix.Setxattr(n.procPath(), attr, value, flags) })
}

// RemoveXattr removes an extended attribute as the caller.
func (fs *FS) RemoveXattr(n *Node, name []byte, c *Cred, w *Wcc) error {
	attr, err := xattrName(name)
	if err != nil {
		return err
	}
	return fs.changingXattr(n, c, w, func() error { return unix.Removexattr(n.procPath(), attr) })
}

func (fs *FS) changingXattr(n *Node, c *Cred, w *Wcc, call func() error) error {
	if err := fs.changing(n, c, w, call); err != nil {
		return err
	}
	return n.Sync(false)
}

// ListXattrs returns the names of the extended attributes in the user's namespace, without it.
func (fs *FS) ListXattrs(n *Node) ([]string, error) {
	path := n.procPath()
	for {
		size, err := unix.Listxattr(path, nil)
		if err != nil || size == 0 {
			return nil, err
		}
		b := make([]byte, size)
		if size, err = unix.Listxattr(path, b); err == nil {
			return userNames(string(b[:size])), nil
		}
		if !errors.Is(err, unix.ERANGE) { // otherwise one was added meanwhile
			return nil, err
		}
	}
}

func userNames(list string) (names []string) {
	for attr := range strings.SplitSeq(list, "\x00") {
		if name, ok := strings.CutPrefix(attr, userXattr); ok {
			names = append(names, name)
		}
	}
	return names
}

// probeXattrs reports whether the file system has extended attributes of users.
func probeXattrs(fd int) bool {
	var p procFD
	path := p.set(fd)
	_, err := unix.Getxattr(string(path[:len(path)-1]), userXattr+"sluice", nil)
	return !errors.Is(err, unix.EOPNOTSUPP)
}

package vfs

import (
	"bytes"

	"golang.org/x/sys/unix"
)

// MaxName is the longest name of a directory entry, in bytes.
const MaxName = 255

// Name is a NUL-terminated name in a directory. It is reusable.
type Name struct {
	b [MaxName + 1]byte
	n int
}

// Set sets the name. An empty name, or one with a slash or a NUL, is EINVAL; one that is too long
// ENAMETOOLONG.
func (n *Name) Set(b []byte) error {
	n.n = 0
	if len(b) == 0 || bytes.IndexByte(b, '/') >= 0 || bytes.IndexByte(b, 0) >= 0 {
		return unix.EINVAL
	}
	if len(b) > MaxName {
		return unix.ENAMETOOLONG
	}
	n.n = copy(n.b[:], b)
	n.b[n.n] = 0
	return nil
}

func (n *Name) String() string     { return string(n.b[:n.n]) }
func (n *Name) bytes() []byte      { return n.b[:n.n] }
func (n *Name) terminated() []byte { return n.b[:n.n+1] }

// Dot reports whether the name is ".".
func (n *Name) Dot() bool { return n.n == 1 && n.b[0] == '.' }

// DotDot reports whether the name is "..".
func (n *Name) DotDot() bool { return n.n == 2 && n.b[0] == '.' && n.b[1] == '.' }

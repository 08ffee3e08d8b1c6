package vfs

import (
	"bytes"
	"encoding/binary"
)

var (
	dot    = []byte(".")
	dotdot = []byte("..")
)

// Dirents iterates over the result of getdents64(2).
type Dirents struct {
	// Ino, Off (the cookie of the next entry), Type (DT_DIR and so on) and Name describe the
	// present entry; Name is a view of the buffer.
	Ino  uint64
	Off  int64
	Type uint8
	Name []byte

	b []byte
}

// Next advances to the next entry; false at the end.
func (d *Dirents) Next() bool {
	const fixed = 19
	if len(d.b) < fixed {
		return false
	}
	size := int(binary.NativeEndian.Uint16(d.b[16:]))
	if size < fixed || size > len(d.b) {
		return false
	}
	d.Ino = binary.NativeEndian.Uint64(d.b)
	d.Off = int64(binary.NativeEndian.Uint64(d.b[8:]))
	d.Type = d.b[18]
	d.Name = d.b[fixed:size]
	if k := bytes.IndexByte(d.Name, 0); k >= 0 {
		d.Name = d.Name[:k]
	}
	d.b = d.b[size:]
	return true
}

// Entries iterates over the entries in b.
func Entries(b []byte) Dirents { return Dirents{b: b} }

// Package pattern has the names and contents of the files that the probe writes in the guest, so
// that the host can compare.
package pattern

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
)

// File has Length bytes of data at Offset, and zeros before.
type File struct {
	Offset, Length int
}

// Files returns lengths of 0 to 70 bytes and 4 KiB, 64 KiB and 1 MiB, ± 5, each at offset 0 and at
// one that is no multiple of 4.
func Files() []File {
	var files []File
	add := func(from, to int) {
		for n := from; n <= to; n++ {
			files = append(files, File{0, n}, File{1 + n/4%3 + 4*(n%9), n})
		}
	}
	add(0, 70)
	for _, size := range []int{4 << 10, 64 << 10, 1 << 20} {
		add(size-5, size+5)
	}
	return files
}

// Name is the file's, unique among Files.
func (f File) Name() string { return fmt.Sprintf("%d@%d", f.Length, f.Offset) }

// Data returns the bytes at Offset. They depend on the file and on round, and repeat nowhere.
func (f File) Data(round int) []byte {
	seed := [32]byte{}
	binary.LittleEndian.PutUint64(seed[0:], uint64(f.Offset))
	binary.LittleEndian.PutUint64(seed[8:], uint64(f.Length))
	binary.LittleEndian.PutUint64(seed[16:], uint64(round))
	b := make([]byte, f.Length)
	_, _ = rand.NewChaCha8(seed).Read(b) // never fails
	return b
}

// Content returns the whole file. A file without data is empty: a write of no bytes does not extend
// it.
func (f File) Content(round int) []byte {
	if f.Length == 0 {
		return nil
	}
	return append(make([]byte, f.Offset), f.Data(round)...)
}

// Differ describes the first difference of got from want; "" means none.
func Differ(got, want []byte) string {
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return fmt.Sprintf("differs at byte %d of %d: %#02x, must be %#02x", i, len(want), got[i], want[i])
		}
	}
	if len(got) != len(want) {
		return fmt.Sprintf("has %d bytes, must have %d", len(got), len(want))
	}
	return ""
}

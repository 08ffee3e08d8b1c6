package pattern

import "math/rand/v2"

// Lengths returns the lengths of consecutive reads or writes of one file, around every bound of
// messages of RPC-over-RDMA version 2: thresholds of 1 KiB and 4 KiB less the headers, receives of
// 64 KiB, groups of 16 of 4 KiB each less the headers, and the longest call.
func Lengths() (all []int) {
	add := func(from, to, step int) {
		for n := from; n <= to; n += step {
			all = append(all, n)
		}
	}
	add(640, 1040, 7)
	add(3600, 4120, 5) // each remainder by 4
	add(63_900, 65_600, 107)
	add(64<<10-3, 64<<10+3, 1)
	add(128<<10-1, 128<<10+1, 1)
	add(1<<20-1, 1<<20, 1)
	return all
}

// Stream returns the contents of the file of Lengths: bytes that repeat nowhere.
func Stream() []byte {
	n := 0
	for _, l := range Lengths() {
		n += l
	}
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1: 'L'}).Read(b) // never fails
	return b
}

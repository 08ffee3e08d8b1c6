//go:build kernel

package kernel

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
)

// misreadCRCs counts, in a guest's kernel messages, the connections that siw ended for a CRC error
// of its own making. When a CRC arrives in two TCP segments, siw stores the second part at the
// place of the first and compares the result (siw_get_trailer, in Linux 6.1 as in 6.12). No sender
// can prevent it: a segment may end anywhere when the receiver's window is full.
func misreadCRCs(said string) int {
	n := 0
	for line := range strings.Lines(said) {
		if _, words, found := strings.Cut(line, "siw: crc error. "); found {
			var kept, computed uint32
			if parsed, _ := fmt.Sscanf(words, "in: %x, own %x,", &kept, &computed); parsed == 2 && overwritten(kept, computed) {
				n++
			}
		}
	}
	return n
}

// overwritten reports whether siw stores kept for the CRC sent in two parts. Both are as siw prints
// them: little-endian words.
func overwritten(kept, sent uint32) bool {
	crc := binary.LittleEndian.AppendUint32(nil, sent)
	for cut := 1; cut < len(crc); cut++ {
		place := binary.LittleEndian.AppendUint32(nil, kept) // bytes that no part overwrote
		copy(place, crc[:cut])
		copy(place, crc[cut:])
		if binary.LittleEndian.Uint32(place) == kept {
			return true
		}
	}
	return false
}

func TestMisreadCRCs(t *testing.T) {
	for line, want := range map[string]int{
		// observed: three bytes and one
		"[   65.245151] siw: crc error. in: b4312dde, own de312d8c, op 4\n": 1,
		"siw: crc error. in: 04ddccbb, own ddccbbaa, op 0\n":                1, // one and three
		"siw: crc error. in: 0403ddcc, own ddccbbaa, op 2\n":                1, // two and two
		"siw: crc error. in: ddccbb00, own ddccbbaa, op 0\n":                0, // one byte is wrong
		"siw: crc error. in: 4b9a1f02, own ddccbbaa, op 0\n":                0, // all are wrong
		"siw: SoftiWARP attached\n":                                         0,
	} {
		if n := misreadCRCs(line); n != want {
			t.Errorf("%q: %d, want %d", line, n, want)
		}
	}
}

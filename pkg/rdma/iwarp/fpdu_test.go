package iwarp

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// send24 is the ULPDU of RFC 5044 figures 5 and 6: a Send of 24 zero bytes.
func send24(msn uint32) []byte {
	return append(untaggedHeader{last: true, op: opSend, msn: msn}.append(nil), make([]byte, 24)...)
}

// asFPDU frames a ULPDU with the sender's own functions.
func (t *sender) asFPDU(ulpdu []byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(len(ulpdu)))
	b = append(b, ulpdu...)
	return t.closeFPDU(b, 0, 0, 0)
}

func TestCRCVectors(t *testing.T) {
	plain := sender{crc: true}
	if got, want := plain.asFPDU(send24(1)), unhex(t, "002a 4143 00000000 00000000 00000001 00000000"+zeros24+"b7243ec3"); !bytes.Equal(got, want) {
		t.Errorf("without markers: %x, want %x", got, want)
	}
	if err := checkCRC(plain.asFPDU(send24(1))); err != nil {
		t.Error(err)
	}
	// Figures 5 and 6 of RFC 5044: the first FPDU opens the stream; the second one has a marker 20
	// bytes into it.
	marked := sender{crc: true, markers: true}
	if got, want := marked.asFPDU(send24(1)), unhex(t, "00000000 002a 4143 00000000 00000000 00000001 00000000"+zeros24+"52239983"); !bytes.Equal(got, want) {
		t.Errorf("figure 5: %x, want %x", got, want)
	}
	marked = sender{crc: true, markers: true, mark: marker{until: 20}}
	if got, want := marked.asFPDU(send24(2)), unhex(t, "002a 4143 00000000 00000000 00000002 00000000 00000014"+zeros24+"84925898"); !bytes.Equal(got, want) {
		t.Errorf("figure 6: %x, want %x", got, want)
	}
	off := sender{}
	if got := off.asFPDU(send24(1)); binary.BigEndian.Uint32(got[len(got)-4:]) != 0 {
		t.Errorf("without CRC: %x", got)
	}
}

const zeros24 = "000000000000000000000000000000000000000000000000"

func TestFPDULen(t *testing.T) {
	for n := range 70 {
		if l := fpduLen(n); l%4 != 0 || l < 2+n+4 || l > 2+n+4+3 {
			t.Errorf("ULPDU of %d bytes: FPDU of %d", n, l)
		}
	}
}

// unmark takes the markers out of a stream and verifies them.
func unmark(t *testing.T, stream []byte) (out []byte) {
	t.Helper()
	// The starts of FPDUs, in the stream with markers.
	fpdu, left := 0, 0
	starts := map[int]bool{}
	for i := 0; i < len(stream); {
		if i%markerInterval == 0 {
			m := binary.BigEndian.Uint32(stream[i:])
			want := 0
			if left > 0 {
				want = i - fpdu
			}
			if int(m) != want {
				t.Fatalf("marker at %d: %08x, want %08x", i, m, want)
			}
			i += 4
			continue
		}
		if left == 0 {
			fpdu, left = i, fpduLen(int(binary.BigEndian.Uint16(stream[i:])))
			starts[i] = true
		}
		k := min(left, markerInterval-i%markerInterval)
		out = append(out, stream[i:i+k]...)
		i += k
		left -= k
	}
	if left != 0 {
		t.Fatalf("the last FPDU lacks %d bytes", left)
	}
	return out
}

func TestMarkers(t *testing.T) {
	tx := sender{crc: true, markers: true}
	var stream, want []byte
	for i := range 400 {
		ulpdu := bytes.Repeat([]byte{byte(i)}, 14+i*5%1700)
		stream = append(stream, tx.asFPDU(ulpdu)...)
		want = append(want, ulpdu...)
	}
	var got []byte
	for b := unmark(t, stream); len(b) > 0; {
		n := int(binary.BigEndian.Uint16(b))
		got = append(got, b[2:2+n]...)
		b = b[fpduLen(n):]
	}
	if !bytes.Equal(got, want) {
		t.Error("what is between the markers is not what was sent")
	}
}

func TestMULPDU(t *testing.T) {
	for _, c := range []struct {
		emss    int
		markers bool
		want    int
	}{
		{1460, false, 1454}, {1448, false, 1442}, {1449, false, 1442}, {1460, true, 1442}, {100, false, 128}, {65483, false, 65474}, {1 << 20, false, 65535},
	} {
		if got := mulpdu(c.emss, c.markers); got != c.want {
			t.Errorf("EMSS %d, markers %v: %d, want %d", c.emss, c.markers, got, c.want)
		} else if got > 128 && got < maxULPDU && fpduLen(got) > c.emss {
			t.Errorf("EMSS %d: FPDU of %d bytes", c.emss, fpduLen(got))
		}
	}
}

func TestChunkSize(t *testing.T) {
	for _, max := range []int{128, 1442, 9000, 20000, maxULPDU} {
		tx := sender{maxULPDU: max}
		for _, n := range []int{0, 1, 100, 1428, 1429, 8192, 65517, 65521, 65522, 65536, 100000, 1 << 20, 1<<20 + 1, 1<<32 - 1} {
			c := tx.chunkSize(n, taggedLen)
			if c < 1 || c+taggedLen > max {
				t.Errorf("maximum %d, message of %d: segments of %d", max, n, c)
			}
			if n > c && c < max/2-chunkUnit {
				t.Errorf("maximum %d, message of %d: segments of only %d", max, n, c)
			}
		}
	}
}

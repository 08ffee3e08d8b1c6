package iwarp

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// unhex decodes hexadecimal digits; blanks are for the eye.
func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.NewReplacer(" ", "", "\n", "", "\t", "").Replace(s))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const (
	requestKeyHex = "4d504120494420526571204672616d65"
	replyKeyHex   = "4d504120494420526570204672616d65"
)

var mpaVectors = []struct {
	name  string
	hex   string
	frame mpaFrame
}{
	{"request of the Linux NFS client", requestKeyHex + "10 02 000c 0080 0000 f6ab0e1801010303",
		mpaFrame{enhanced: true, revision: 2, ird: 128, private: []byte("\xf6\xab\x0e\x18\x01\x01\x03\x03")}},
	{"reply to it", replyKeyHex + "50 02 000c 0000 0040 f6ab0e1801010303",
		mpaFrame{reply: true, crc: true, enhanced: true, revision: 2, ord: 64, private: []byte("\xf6\xab\x0e\x18\x01\x01\x03\x03")}},
	{"reply of the Linux NFS server", replyKeyHex + "10 02 000c 0000 0010 f6ab0e1801000303",
		mpaFrame{reply: true, enhanced: true, revision: 2, ord: 16, private: []byte("\xf6\xab\x0e\x18\x01\x00\x03\x03")}},
	{"revision 1 with markers and CRC", requestKeyHex + "c0 01 0000", mpaFrame{markers: true, crc: true, revision: 1, private: []byte{}}},
	{"rejection of revision 1", replyKeyHex + "60 01 0003 78797a", mpaFrame{reply: true, crc: true, rejected: true, revision: 1, private: []byte("xyz")}},
	{"revision 2 without enhanced data", requestKeyHex + "00 02 0001 41", mpaFrame{revision: 2, private: []byte("A")}},
	{"peer to peer, all kinds of RTR", requestKeyHex + "10 02 0004 c001 c002",
		mpaFrame{enhanced: true, revision: 2, peerToPeer: true, rtrSend: true, rtrWrite: true, rtrRead: true, ird: 1, ord: 2, private: []byte{}}},
	{"peer to peer, RTR by Write", replyKeyHex + "10 02 0004 8001 8002",
		mpaFrame{reply: true, enhanced: true, revision: 2, peerToPeer: true, rtrWrite: true, ird: 1, ord: 2, private: []byte{}}},
	{"peer to peer, RTR by Read", replyKeyHex + "10 02 0004 8001 4002",
		mpaFrame{reply: true, enhanced: true, revision: 2, peerToPeer: true, rtrRead: true, ird: 1, ord: 2, private: []byte{}}},
	{"depths left to the upper layer", requestKeyHex + "10 02 0004 3fff 3fff",
		mpaFrame{enhanced: true, revision: 2, ird: 0x3fff, ord: 0x3fff, private: []byte{}}},
	{"largest private data", requestKeyHex + "00 01 0200" + strings.Repeat("a5", 512),
		mpaFrame{revision: 1, private: bytes.Repeat([]byte{0xa5}, 512)}},
}

func TestMPAVectors(t *testing.T) {
	for _, v := range mpaVectors {
		t.Run(v.name, func(t *testing.T) {
			b := unhex(t, v.hex)
			got, n, err := parseMPA(append(bytes.Clone(b), "behind"...), v.frame.reply)
			if err != nil || n != len(b) {
				t.Fatalf("parse: %d bytes of %d, %v", n, len(b), err)
			}
			if d := cmp.Diff(v.frame, got, cmp.AllowUnexported(mpaFrame{})); d != "" {
				t.Error(d)
			}
			if out := v.frame.append([]byte("x")); !bytes.Equal(out[1:], b) {
				t.Errorf("append: %x, want %x", out[1:], b)
			}
			// Cut anywhere: wait for more. From a reader, byte by byte: exactly the frame.
			for k := range b {
				if _, more, err := parseMPA(b[:k], v.frame.reply); !errors.Is(err, io.ErrUnexpectedEOF) || more <= k || more > len(b) {
					t.Fatalf("%d bytes: %v, %d wanted", k, err, more)
				}
				if _, err := readMPA(bytes.NewReader(b[:k]), v.frame.reply); !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
					t.Fatalf("read of %d bytes: %v", k, err)
				}
			}
			r := bytes.NewReader(append(bytes.Clone(b), "behind"...))
			got, err = readMPA(iotest.OneByteReader(r), v.frame.reply)
			if err != nil || r.Len() != len("behind") {
				t.Fatalf("read: %v, %d bytes left", err, r.Len())
			}
			if d := cmp.Diff(v.frame, got, cmp.AllowUnexported(mpaFrame{})); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestMPABad(t *testing.T) {
	for name, c := range map[string]struct {
		hex   string
		reply bool
	}{
		"first byte wrong":                        {"47", false},
		"HTTP":                                    {hex.EncodeToString([]byte("GET / HTTP/1.1\r\n")), false},
		"reply instead of a request":              {replyKeyHex + "00010000", false},
		"request instead of a reply":              {requestKeyHex + "00010000", true},
		"revision 0":                              {requestKeyHex + "00000000", false},
		"revision 3":                              {requestKeyHex + "10030004 00000000", false},
		"513 bytes of private data":               {requestKeyHex + "00010201", false},
		"enhanced data longer than what is there": {requestKeyHex + "10020003 000000", false},
	} {
		b := unhex(t, c.hex)
		if _, _, err := parseMPA(b, c.reply); !errors.Is(err, errMPA) {
			t.Errorf("%s: parse says %v", name, err)
		}
		if _, err := readMPA(io.MultiReader(bytes.NewReader(b), iotest.ErrReader(io.EOF)), c.reply); len(b) >= 16 && !errors.Is(err, errMPA) {
			t.Errorf("%s: read says %v", name, err)
		}
	}
	// Revision 1 has no enhanced data: the bit is reserved, and ignored.
	f, _, err := parseMPA(unhex(t, requestKeyHex+"1f01 0004 01020304"), false)
	if err != nil || f.enhanced || !bytes.Equal(f.private, []byte{1, 2, 3, 4}) {
		t.Errorf("revision 1 with reserved bits: %+v, %v", f, err)
	}
}

func FuzzMPA(f *testing.F) {
	for _, v := range mpaVectors {
		f.Add(unhex(f, v.hex), v.frame.reply)
	}
	for _, l := range captured(f) {
		if l.kind == "mpa" {
			f.Add(l.bytes, l.who == "server")
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, reply bool) {
		frame, n, err := parseMPA(b, reply)
		if err != nil {
			if errors.Is(err, io.ErrUnexpectedEOF) && n <= len(b) {
				t.Fatalf("%d bytes are too few, but %d would do", len(b), n)
			}
			return
		}
		again, m, err := parseMPA(frame.append(nil), reply)
		if err != nil || m != n {
			t.Fatalf("appended: %d bytes instead of %d, %v", m, n, err)
		}
		if d := cmp.Diff(frame, again, cmp.AllowUnexported(mpaFrame{})); d != "" {
			t.Fatal(d)
		}
	})
}

package iwarp

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// capturedLine is a piece of a real connection.
type capturedLine struct {
	who, kind string // client or server; mpa, header (of an FPDU) or fpdu
	bytes     []byte
}

// captured reads testdata.
func captured(t testing.TB) (lines []capturedLine) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("testdata: %v, %v", files, err)
	}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		s := bufio.NewScanner(f)
		for s.Scan() {
			if strings.HasPrefix(s.Text(), "#") {
				continue
			}
			w := strings.Fields(s.Text())
			lines = append(lines, capturedLine{w[0], w[1], unhex(t, w[2])})
		}
		if s.Err() != nil {
			t.Fatal(s.Err())
		}
	}
	return lines
}

// reencode parses the headers of a ULPDU and appends them again.
func reencode(t testing.TB, b []byte) []byte {
	t.Helper()
	if b[0]&flagTagged != 0 {
		h, _, err := parseTagged(b)
		if err != nil {
			t.Fatal(err)
		}
		return h.append(nil)
	}
	h, n, err := parseUntagged(b)
	if err != nil {
		t.Fatal(err)
	}
	out := h.append(nil)
	if h.op == opReadRequest {
		r, _, err := parseReadRequest(b[n:min(len(b), n+readRequestLen)])
		if err != nil {
			t.Fatal(err)
		}
		out = r.append(out)
	}
	return out
}

// TestCaptured parses the bytes of two Linux kernels, and encodes them to the same bytes.
func TestCaptured(t *testing.T) {
	kinds := map[string]int{}
	for _, l := range captured(t) {
		kinds[l.kind]++
		switch l.kind {
		case "mpa":
			f, n, err := parseMPA(l.bytes, l.who == "server")
			if err != nil || n != len(l.bytes) {
				t.Errorf("%x: %d bytes, %v", l.bytes, n, err)
			}
			if got := f.append(nil); !bytes.Equal(got, l.bytes) {
				t.Errorf("MPA frame %x became %x", l.bytes, got)
			}
		case "header":
			kinds[opcode(l.bytes[3]&15).String()]++
			if got := reencode(t, l.bytes[2:]); !bytes.Equal(got, l.bytes[2:]) {
				t.Errorf("headers %x became %x", l.bytes[2:], got)
			}
		case "fpdu":
			n := int(binary.BigEndian.Uint16(l.bytes))
			if fpduLen(n) != len(l.bytes) {
				t.Errorf("FPDU of %d bytes, computed %d", len(l.bytes), fpduLen(n))
			}
			if got := reencode(t, l.bytes[2:2+n]); !bytes.HasPrefix(l.bytes[2:], got) {
				t.Errorf("headers of %x became %x", l.bytes, got)
			}
		}
	}
	for _, kind := range []string{"mpa", "fpdu", "RDMA Write", "RDMA Read Request", "RDMA Read Response", "Send", "Send with Invalidate"} {
		if kinds[kind] == 0 {
			t.Errorf("no %s in testdata", kind)
		}
	}
}

func TestHeaderVectors(t *testing.T) {
	for name, c := range map[string]struct {
		hex  string
		want []byte
	}{
		"last Write":           {"c140 11223344 0102030405060708", taggedHeader{true, opWrite, 0x11223344, 0x0102030405060708}.append(nil)},
		"Write that goes on":   {"8140 11223344 ffffffffffffffff", taggedHeader{false, opWrite, 0x11223344, 1<<64 - 1}.append(nil)},
		"last Read Response":   {"c142 00000001 0000000000000002", taggedHeader{true, opReadResponse, 1, 2}.append(nil)},
		"Send":                 {"4143 00000000 00000000 00000001 00000000", untaggedHeader{last: true, op: opSend, msn: 1}.append(nil)},
		"Send with Invalidate": {"0144 aabbccdd 00000000 00000007 00001000", untaggedHeader{op: opSendInv, stag: 0xaabbccdd, msn: 7, mo: 4096}.append(nil)},
		"Terminate":            {"4147 00000000 00000002 00000001 00000000", untaggedHeader{last: true, op: opTerminate, qn: 2, msn: 1}.append(nil)},
		"Read Request": {"00000001 0000000000000002 00000003 00000004 0000000000000005",
			readRequest{sinkSTag: 1, sinkTO: 2, size: 3, sourceSTag: 4, sourceTO: 5}.append(nil)},
	} {
		if want := unhex(t, c.hex); !bytes.Equal(c.want, want) {
			t.Errorf("%s: %x, want %x", name, c.want, want)
		}
	}
}

// parseULPDU parses any b.
func parseULPDU(b []byte) error {
	if len(b) > 0 && b[0]&flagTagged != 0 {
		_, _, err := parseTagged(b)
		return err
	}
	h, n, err := parseUntagged(b)
	if err == nil && h.op == opReadRequest {
		_, _, err = parseReadRequest(b[n:])
	}
	return err
}

func TestHeaderBad(t *testing.T) {
	for name, c := range map[string]struct {
		hex  string
		want termCode
	}{
		"nothing":                     {"", codeFPDUStart},
		"tagged, a byte short":        {"c140 11223344 01020304050607", codeFPDUStart},
		"untagged, a byte short":      {"4143 00000000 00000000 00000001 000000", codeFPDUStart},
		"DDP version 0, tagged":       {"c040 11223344 0102030405060708", codeTaggedVersion},
		"DDP version 2, untagged":     {"4243 00000000 00000000 00000001 00000000", codeUntaggedVersion},
		"RDMAP version 0":             {"c100 11223344 0102030405060708", codeRDMAPVersion},
		"RDMAP version 2":             {"4183 00000000 00000000 00000001 00000000", codeRDMAPVersion},
		"opcode 8":                    {"4148 00000000 00000000 00000001 00000000", codeOpcode},
		"opcode 15, tagged":           {"c14f 11223344 0102030405060708", codeOpcode},
		"tagged Send":                 {"c143 11223344 0102030405060708", codeOpcode},
		"untagged Write":              {"4140 00000000 00000000 00000001 00000000", codeOpcode},
		"Read Request, a byte short":  {"4141 00000000 00000001 00000001 00000000" + strings.Repeat("00", 27), codeOperation},
		"Read Request, a byte longer": {"4141 00000000 00000001 00000001 00000000" + strings.Repeat("00", 29), codeTooLong},
	} {
		err := parseULPDU(unhex(t, c.hex))
		got := asTerminate(err)
		if got == nil || (termCode{got.Layer, got.Type, got.Code}) != c.want {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func FuzzHeader(f *testing.F) {
	for _, l := range captured(f) {
		if l.kind != "mpa" {
			f.Add(l.bytes[2:])
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := parseULPDU(b); err != nil {
			if asTerminate(err) == nil {
				t.Fatalf("%v is nothing to terminate with", err)
			}
			return
		}
		got := reencode(t, b)
		want := bytes.Clone(b[:len(got)])
		want[0] &^= 0x3c // reserved bits are not kept
		want[1] &^= 0x30
		if !bytes.Equal(got, want) {
			t.Fatalf("%x became %x", want, got)
		}
	})
}

func TestTerminateVectors(t *testing.T) {
	read := unhex(t, "4141 00000000 00000001 00000001 00000000")
	request := readRequest{sinkSTag: 1, sinkTO: 2, size: 3, sourceSTag: 4, sourceTO: 5}.append(nil)
	write := taggedHeader{true, opWrite, 0x11223344, 9}.append(nil)
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"CRC: no headers":                      {about(codeCRC.errorf("x"), write, 30, nil), "20 02 00 00"},
		"local: no headers":                    {about(codeRDMAPLocal.errorf("x"), write, 30, nil), "00 00 00 00"},
		"tagged: DDP header":                   {about(codeBounds.errorf("x"), write, 30, nil), "11 01 c0 00 001e c140 11223344 0000000000000009"},
		"untagged: DDP header":                 {about(codeNoBuffer.errorf("x"), read, 46, nil), "12 02 c0 00 002e 4141 00000000 00000001 00000001 00000000"},
		"operation: DDP header":                {about(codeOpcode.errorf("x"), read, 46, request), "02 06 c0 00 002e 4141 00000000 00000001 00000001 00000000"},
		"protection: DDP and RDMAP header":     {about(codeReadAccess.errorf("x"), read, 46, request), "01 02 e0 00 002e 4141 00000000 00000001 00000001 00000000 00000001 0000000000000002 00000003 00000004 0000000000000005"},
		"without a segment there is no header": {codeMSN.errorf("x"), "12 03 00 00"},
	} {
		got := asTerminate(c.err).payload()
		if want := unhex(t, c.want); !bytes.Equal(got, want) {
			t.Errorf("%s: %x, want %x", name, got, want)
		}
		p, n, err := parseTerminate(got)
		if err != nil || n != len(got) || !bytes.Equal(p.append(nil), got) {
			t.Errorf("%s: parsed %+v, %d bytes, %v", name, p, n, err)
		}
	}
}

// TestTerminateReceived: the error has both readings, the RFC's and Linux siw's.
func TestTerminateReceived(t *testing.T) {
	// "No buffer" of DDP, as siw on a little-endian machine packs it: nibbles reversed.
	err := receivedTerminate(unhex(t, "21 02 03 00 0000"))
	term := asTerminate(err)
	if term == nil || !term.Remote || term.Layer != 2 || term.Type != 1 || term.Code != 2 {
		t.Fatalf("%#v", err)
	}
	for _, part := range []string{"210203000000", "DDP: no buffer for the message (1/2/02)", "(2/1/02)"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not mention %q", err, part)
		}
	}
	if err := receivedTerminate([]byte{1, 2, 3}); err == nil || errors.Is(err, errMPA) {
		t.Error(err)
	}
}

func FuzzTerminate(f *testing.F) {
	f.Add(unhex(f, "20 02 00 00"))
	f.Add(unhex(f, "01 02 e0 00 002e 4141 00000000 00000001 00000001 00000000 00000001 0000000000000002 00000003 00000004 0000000000000005"))
	f.Add(unhex(f, "02 02 03 00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, n, err := parseTerminate(b)
		if err != nil {
			return
		}
		if n > len(b) {
			t.Fatalf("%d of %d bytes", n, len(b))
		}
		_ = p.String()
		if err := receivedTerminate(b); err == nil || err.Error() == "" {
			t.Fatal("no error")
		}
	})
}

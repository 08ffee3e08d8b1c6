package oncrpc

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sluice.dev/sluice/pkg/xdr"
)

// unhex converts hexadecimal words, with any white space, to bytes.
func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func split(b []byte, n int) (s [][]byte) {
	for len(b) > n {
		s, b = append(s, b[:n:n]), b[n:]
	}
	return append(s, b)
}

// A GETATTR with an AUTH_SYS credential: stamp 1, machine "host1", uid 1000, gid 100, gids 100 and
// 4.
const callHex = `
	0a0b0c0d 00000000 00000002 000186a3 00000003 00000001
	00000001 00000024 00000001 00000005 686f7374 31000000 000003e8 00000064 00000002 00000064 00000004
	00000000 00000000
	00000004 deadbeef`

func TestDecodeCall(t *testing.T) {
	msg := unhex(t, callHex)
	for _, n := range []int{1, 3, 4, 17, len(msg)} {
		c := &Call{}
		c.Stream = split(msg, n)
		if err := DecodeCall(c); err != nil {
			t.Fatal(err)
		}
		got := []any{c.XID, c.Program, c.Version, c.Procedure, c.Cred.Flavor, c.Verf.Flavor, len(c.Verf.Body), c.ArgsAt}
		if d := cmp.Diff([]any{uint32(0x0a0b0c0d), uint32(100003), uint32(3), uint32(1), uint32(AuthSys), uint32(AuthNone), 0, 76}, got); d != "" {
			t.Errorf("in pieces of %d: %s", n, d)
		}
		var a AuthSysParms
		if err := a.Decode(c.Cred); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(AuthSysParms{1, []byte("host1"), 1000, 100, []uint32{100, 4}}, a); d != "" {
			t.Error(d)
		}
		if fh := c.Args().Opaque(64); !bytes.Equal(fh, []byte{0xde, 0xad, 0xbe, 0xef}) {
			t.Errorf("argument is %x", fh)
		}
		cred, err := a.Auth()
		if err != nil {
			t.Fatal(err)
		}
		var e xdr.Encoder
		e.Reset(make([]byte, 0, 200), nil)
		EncodeCallHeader(&e, c.XID, c.Program, c.Version, c.Procedure, cred, Auth{})
		e.Opaque([]byte{0xde, 0xad, 0xbe, 0xef})
		if !bytes.Equal(e.Bytes(), msg) {
			t.Errorf("encoded again: %x", e.Bytes())
		}
	}
}

func TestDecodeCallRefused(t *testing.T) {
	pad := strings.Repeat("00", 404)
	for _, tt := range []struct {
		name, msg string
		is        error  // nil: dropped
		reply     string // the reply of Refuse
	}{
		{"empty", "", nil, ""},
		{"XID only", "01020304", nil, ""},
		{"a reply", "01020304 00000001 00000000 00000000 00000000 00000000", nil, ""},
		{"message type 2", "01020304 00000002 00000002 00000001 00000001 00000001 00000000 00000000 00000000 00000000", nil, ""},
		{"RPC version 3", "01020304 00000000 00000003", ErrRPCVersion, "01020304 00000001 00000001 00000000 00000002 00000002"},
		{"long credential", "01020304 00000000 00000002 00000001 00000001 00000001 00000001 00000191" + pad, ErrBadCred, "01020304 00000001 00000001 00000001 00000001"},
		{"long verifier", "01020304 00000000 00000002 00000001 00000001 00000001 00000000 00000000 00000001 ffffffff" + pad, ErrBadVerf, "01020304 00000001 00000001 00000001 00000003"},
		{"no verifier", "01020304 00000000 00000002 00000001 00000001 00000001 00000000 00000000", nil, ""},
		{"credential cut", "01020304 00000000 00000002 00000001 00000001 00000001 00000001 00000010 00000000", nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, r := newTestCall(t)
			c.Stream = split(unhex(t, tt.msg), 1<<20)
			err := DecodeCall(c)
			if err == nil || tt.is != nil && !errors.Is(err, tt.is) {
				t.Fatalf("error is %v, want %v", err, tt.is)
			}
			c.Refuse(err)
			if !bytes.Equal(r.sent, unhex(t, tt.reply)) || r.dropped != (tt.is == nil) {
				t.Errorf("sent %x, dropped %v", r.sent, r.dropped)
			}
		})
	}
}

func TestReplyHeader(t *testing.T) {
	for _, tt := range []struct {
		msg  string
		want ReplyHeader
	}{
		{"00000007 00000001 00000000 00000000 00000000 00000000", ReplyHeader{XID: 7}},
		{"00000007 00000001 00000000 00000001 00000004 01020304 00000000", ReplyHeader{XID: 7, Verf: Auth{1, []byte{1, 2, 3, 4}}}},
		{"00000007 00000001 00000000 00000000 00000000 00000001", ReplyHeader{XID: 7, Status: Status{Accept: ProgUnavail}}},
		{"00000007 00000001 00000000 00000000 00000000 00000002 00000003 00000004", ReplyHeader{XID: 7, Status: Status{Accept: ProgMismatch, Low: 3, High: 4}}},
		{"00000007 00000001 00000000 00000000 00000000 00000003", ReplyHeader{XID: 7, Status: Status{Accept: ProcUnavail}}},
		{"00000007 00000001 00000000 00000000 00000000 00000004", ReplyHeader{XID: 7, Status: Status{Accept: GarbageArgs}}},
		{"00000007 00000001 00000000 00000000 00000000 00000005", ReplyHeader{XID: 7, Status: Status{Accept: SystemErr}}},
		{"00000007 00000001 00000001 00000000 00000002 00000002", ReplyHeader{XID: 7, Status: Status{Denied: true, Reject: RPCMismatch, Low: 2, High: 2}}},
		{"00000007 00000001 00000001 00000001 00000005", ReplyHeader{XID: 7, Status: Status{Denied: true, Reject: AuthError, Auth: AuthTooWeak}}},
		{"00000007 00000001 00000001 00000001 0000000e", ReplyHeader{XID: 7, Status: Status{Denied: true, Reject: AuthError, Auth: RPCSecGSSCtxProblem}}},
	} {
		msg := unhex(t, tt.msg)
		for _, n := range []int{1, 5, 100} {
			var d xdr.Decoder
			d.Reset(split(msg, n), nil)
			var h ReplyHeader
			if err := h.Decode(&d); err != nil || d.Left() != 0 {
				t.Errorf("%s: %v, %d bytes left", tt.want.Status, err, d.Left())
			}
			if diff := cmp.Diff(tt.want, h); diff != "" {
				t.Errorf("%s: %s", tt.want.Status, diff)
			}
		}
		var e xdr.Encoder
		e.Reset(make([]byte, 0, 100), nil)
		tt.want.Encode(&e)
		if !bytes.Equal(e.Bytes(), msg) {
			t.Errorf("%s: encoded %x, want %x", tt.want.Status, e.Bytes(), msg)
		}
	}
	for _, bad := range []string{
		"", "00000007 00000000", "00000007 00000001 00000002", "00000007 00000001 00000000 00000000 00000191" + strings.Repeat("00", 404),
		"00000007 00000001 00000000 00000000 00000000 00000006", "00000007 00000001 00000001 00000002", "00000007 00000001 00000001 00000001",
		"00000007 00000001 00000000 00000000 00000000 00000002 00000003",
	} {
		var d xdr.Decoder
		d.ResetBytes(unhex(t, bad))
		var h ReplyHeader
		if err := h.Decode(&d); err == nil {
			t.Errorf("%q was accepted: %+v", bad, h)
		}
	}
}

func TestStatusNames(t *testing.T) {
	for _, tt := range []struct {
		s    Status
		want string
	}{
		{Status{}, "SUCCESS"},
		{Status{Accept: SystemErr}, "SYSTEM_ERR"},
		{Status{Accept: 9}, "accept_stat 9"},
		{Status{Denied: true}, "RPC_MISMATCH"},
		{Status{Denied: true, Reject: AuthError, Auth: AuthBadCred}, "AUTH_BADCRED"},
		{Status{Denied: true, Reject: AuthError, Auth: RPCSecGSSCtxProblem}, "RPCSEC_GSS_CTXPROBLEM"},
		{Status{Denied: true, Reject: AuthError, Auth: 99}, "auth_stat 99"},
	} {
		if got := tt.s.String(); got != tt.want {
			t.Errorf("%+v is %q, want %q", tt.s, got, tt.want)
		}
	}
}

func TestAuthSysBad(t *testing.T) {
	for name, body := range map[string]string{
		"empty":         "",
		"long machine":  "00000000 00000100" + strings.Repeat("41", 256) + "00000000 00000000 00000000",
		"17 gids":       "00000000 00000000 00000000 00000000 00000011" + strings.Repeat("00000000", 17),
		"gids cut":      "00000000 00000000 00000000 00000000 00000002 00000000",
		"trailing word": "00000000 00000000 00000000 00000000 00000000 00000000",
	} {
		var a AuthSysParms
		if err := a.Decode(Auth{AuthSys, unhex(t, body)}); err == nil {
			t.Errorf("%s: accepted as %+v", name, a)
		}
	}
	var a AuthSysParms
	if err := a.Decode(Auth{}); err == nil {
		t.Error("AUTH_NONE was accepted as AUTH_SYS")
	}
	if _, err := (&AuthSysParms{GIDs: make([]uint32, 17)}).Auth(); err == nil {
		t.Error("17 gids were encoded")
	}
	if _, err := (&AuthSysParms{Machine: make([]byte, 256)}).Auth(); err == nil {
		t.Error("a machine name of 256 bytes was encoded")
	}
	max := AuthSysParms{Machine: make([]byte, 255), GIDs: make([]uint32, 16)}
	if auth, err := max.Auth(); err != nil || len(auth.Body) != 340 {
		t.Errorf("the largest credential has %d bytes, %v", len(auth.Body), err)
	}
}

func FuzzCallHeader(f *testing.F) {
	f.Add(unhex(f, callHex), 5)
	f.Add(unhex(f, "01020304 00000000 00000003"), 4)
	f.Add(unhex(f, "01020304 00000000 00000002 00000001 00000001 00000001 00000001 00000191"), 100)
	f.Fuzz(func(t *testing.T, msg []byte, n int) {
		a, b := &Call{}, &Call{}
		a.Stream, b.Stream = [][]byte{msg}, split(msg, max(1, n))
		errA, errB := DecodeCall(a), DecodeCall(b)
		if (errA == nil) != (errB == nil) || errA != nil && errA.Error() != errB.Error() {
			t.Fatalf("whole: %v; in pieces of %d: %v", errA, n, errB)
		}
		if errA != nil {
			return
		}
		if !bytes.Equal(a.Cred.Body, b.Cred.Body) || !bytes.Equal(a.Verf.Body, b.Verf.Body) || a.ArgsAt != b.ArgsAt {
			t.Fatalf("whole: %+v; in pieces of %d: %+v", a, n, b)
		}
		var e xdr.Encoder
		e.Reset(make([]byte, 0, len(msg)), nil)
		EncodeCallHeader(&e, a.XID, a.Program, a.Version, a.Procedure, a.Cred, a.Verf)
		c := &Call{}
		c.Stream = [][]byte{e.Bytes()}
		if err := DecodeCall(c); err != nil || c.ArgsAt != a.ArgsAt || e.Overflow() {
			t.Fatalf("encoded again: %v", err)
		}
		var s AuthSysParms
		if s.Decode(a.Cred) == nil {
			again, err := s.Auth()
			if err != nil || len(again.Body) != len(a.Cred.Body) {
				t.Fatalf("credential %x encoded again: %x, %v", a.Cred.Body, again.Body, err)
			}
		}
	})
}

func FuzzReplyHeader(f *testing.F) {
	f.Add(unhex(f, "00000007 00000001 00000000 00000001 00000004 01020304 00000000"), 3)
	f.Add(unhex(f, "00000007 00000001 00000000 00000000 00000000 00000002 00000003 00000004"), 4)
	f.Add(unhex(f, "00000007 00000001 00000001 00000001 00000005"), 1)
	f.Fuzz(func(t *testing.T, msg []byte, n int) {
		var d xdr.Decoder
		d.ResetBytes(msg)
		var h, again ReplyHeader
		if h.Decode(&d) != nil {
			return
		}
		at := d.Pos()
		d.Reset(split(msg, max(1, n)), nil)
		if err := again.Decode(&d); err != nil || !cmp.Equal(h, again) {
			t.Fatalf("whole: %+v; in pieces of %d: %+v, %v", h, n, again, err)
		}
		var e xdr.Encoder
		e.Reset(make([]byte, 0, len(msg)), nil)
		h.Encode(&e)
		if e.Overflow() || len(e.Bytes()) != at {
			t.Fatalf("%x was encoded again as %x", msg[:at], e.Bytes())
		}
	})
}

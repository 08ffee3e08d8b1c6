package sign

import (
	"bytes"
	"encoding/hex"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"sluice.dev/sluice/pkg/internal/race"
)

// secret returns a secret of 32 equal bytes.
func secret(b byte) []byte { return bytes.Repeat([]byte{b}, MinKey) }

var uid = []byte("0123456789abcdef")

const knownTag = "c3444063b11e4f7a"

func signer(t testing.TB, mode Mode, uid []byte, secrets ...[]byte) *Signer {
	t.Helper()
	s, err := New(secrets, uid, mode)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestTag pins the tag: a change would invalidate all of the clients' handles. The value is from
// openssl kdf and openssl mac.
func TestTag(t *testing.T) {
	got := signer(t, Required, uid, secret(1)).Append(nil, []byte("handle"), Max3)
	if want := hex.EncodeToString([]byte("handle")) + knownTag; hex.EncodeToString(got) != want {
		t.Errorf("signed handle is %x, want %s", got, want)
	}
}

func TestSignVerify(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.SampledFrom([]int{Max3, Max4}).Draw(t, "limit")
		h := rapid.SliceOfN(rapid.Byte(), 0, limit).Draw(t, "handle")
		mode := rapid.SampledFrom([]Mode{Required, Auto, Off}).Draw(t, "mode")
		s, err := New([][]byte{secret(1), secret(2)}, uid, mode)
		if err != nil {
			t.Fatal(err)
		}
		n, ok := s.Len(len(h), limit)
		signed := s.Append([]byte("x"), h, limit)[1:]
		if fits := len(h)+TagLen <= limit; ok != (fits || mode != Required) {
			t.Fatalf("Len(%d, %d) in mode %v is %d, %v", len(h), limit, mode, n, ok)
		}
		if !ok {
			if len(signed) != 0 {
				t.Fatalf("a handle that cannot be handed out was: %x", signed)
			}
			return
		}
		if len(signed) != n {
			t.Fatalf("signed handle has %d bytes, Len says %d", len(signed), n)
		}
		if again := s.Append(nil, h, limit); !bytes.Equal(again, signed) {
			t.Fatalf("signed twice: %x, %x", signed, again)
		}
		got, ok := s.Verify(signed, limit)
		if !ok || !bytes.Equal(got, h) {
			t.Fatalf("opened: %x, %v; want %x", got, ok, h)
		}
	})
}

func TestForged(t *testing.T) {
	s, other := signer(t, Required, uid, secret(1)), signer(t, Required, []byte("another export"), secret(1))
	rapid.Check(t, func(t *rapid.T) {
		h := rapid.SliceOfN(rapid.Byte(), 0, Max3-TagLen).Draw(t, "handle")
		signed := s.Append(nil, h, Max3)
		if _, ok := other.Verify(signed, Max3); ok {
			t.Fatal("another export accepts the handle")
		}
		if _, ok := s.Verify(signed[:rapid.IntRange(0, len(signed)-1).Draw(t, "length")], Max3); ok {
			t.Fatal("a truncated handle is accepted")
		}
		bit := rapid.IntRange(0, 8*len(signed)-1).Draw(t, "bit")
		signed[bit/8] ^= 1 << (bit % 8)
		if _, ok := s.Verify(signed, Max3); ok {
			t.Fatalf("accepted with bit %d flipped", bit)
		}
	})
}

func TestVerifyUnsigned(t *testing.T) {
	tests := []struct {
		mode  Mode
		n     int
		limit int
		want  bool
	}{
		{Required, 0, Max3, false},
		{Required, 28, Max3, false},
		{Required, 57, Max3, false},
		{Required, 64, Max3, false},
		{Auto, 0, Max3, false},
		{Auto, 28, Max3, false},
		{Auto, 56, Max3, false},
		{Auto, 57, Max3, true},
		{Auto, 64, Max3, true},
		{Auto, 64, Max4, false},
		{Auto, 121, Max4, true},
		{Auto, 65, Max3, false},
		{Off, 0, Max3, true},
		{Off, 64, Max3, true},
		{Off, 65, Max3, false},
	}
	for _, tt := range tests {
		s := signer(t, tt.mode, uid, secret(1))
		h := bytes.Repeat([]byte{7}, tt.n)
		if got, ok := s.Verify(h, tt.limit); ok != tt.want || ok && !bytes.Equal(got, h) {
			t.Errorf("%v: Verify of %d bytes without a tag, limit %d: %x, %v, want %v", tt.mode, tt.n, tt.limit, got, ok, tt.want)
		}
	}
}

func TestRotation(t *testing.T) {
	before := signer(t, Required, uid, secret(1))
	during := signer(t, Required, uid, secret(2), secret(1))
	after := signer(t, Required, uid, secret(2))
	old := before.Append(nil, []byte("handle"), Max3)
	if h, ok := during.Verify(old, Max3); !ok || string(h) != "handle" {
		t.Error("an old key does not verify")
	}
	signed := during.Append(nil, []byte("handle"), Max3)
	if bytes.Equal(signed, old) {
		t.Error("an old key signs")
	}
	if _, ok := after.Verify(signed, Max3); !ok {
		t.Error("the first key did not sign")
	}
	if _, ok := after.Verify(old, Max3); ok {
		t.Error("a key that is gone verifies")
	}
}

// TestSetKeys replaces keys one by one while handles are in use.
func TestSetKeys(t *testing.T) {
	uid, handle := []byte("12345678"), []byte("handle")
	s := signer(t, Required, uid, secret(1))
	old := s.Append(nil, handle, Max3)
	set := func(secrets ...[]byte) {
		t.Helper()
		if err := s.SetKeys(secrets); err != nil {
			t.Fatal(err)
		}
	}
	good := func(signed []byte) bool {
		_, ok := s.Verify(signed, Max3)
		return ok
	}
	set(secret(1), secret(2))
	if !bytes.Equal(s.Append(nil, handle, Max3), old) {
		t.Error("a key that is not the first one signs")
	}
	set(secret(2), secret(1))
	young := s.Append(nil, handle, Max3)
	if bytes.Equal(young, old) || !good(young) || !good(old) {
		t.Error("the first key does not sign, or not all of them are accepted")
	}
	if err := s.SetKeys(nil); err == nil || !good(old) {
		t.Error("no keys at all:", err)
	}
	set(secret(2))
	if good(old) || !good(young) {
		t.Error("a key that is gone is accepted, or one that is there is not")
	}
	if err := signer(t, Off, nil).SetKeys(nil); err != nil {
		t.Error(err)
	}
}

func TestNew(t *testing.T) {
	tests := []struct {
		name    string
		secrets [][]byte
		uid     []byte
		mode    Mode
		ok      bool
	}{
		{"off needs nothing", nil, nil, Off, true},
		{"required", [][]byte{secret(1)}, uid, Required, true},
		{"no key", nil, uid, Required, false},
		{"short key", [][]byte{secret(1), secret(2)[1:]}, uid, Auto, false},
		{"too many keys", make([][]byte, MaxKeys+1), uid, Auto, false},
		{"short uid", [][]byte{secret(1)}, uid[:7], Required, false},
		{"no such mode", [][]byte{secret(1)}, uid, Off + 1, false},
	}
	for _, tt := range tests {
		if s, err := New(tt.secrets, tt.uid, tt.mode); (err == nil) != tt.ok || tt.ok && s.Mode() != tt.mode {
			t.Errorf("%s: %v, %v", tt.name, s, err)
		}
	}
}

func TestConcurrent(t *testing.T) {
	s := signer(t, Required, uid, secret(1), secret(2))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			h := bytes.Repeat([]byte{byte(i)}, 20)
			want := s.Append(nil, h, Max3)
			for range 500 {
				if got := s.Append(nil, h, Max3); !bytes.Equal(got, want) {
					t.Errorf("signed as %x, then as %x", want, got)
					return
				}
				if got, ok := s.Verify(want, Max3); !ok || !bytes.Equal(got, h) {
					t.Errorf("opened: %x, %v", got, ok)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestAllocs(t *testing.T) {
	if race.Enabled {
		t.Skip("pools drop what they have under the race detector")
	}
	s := signer(t, Required, uid, secret(1), secret(2))
	h, dst := bytes.Repeat([]byte{5}, 40), make([]byte, 0, Max3)
	signed := s.Append(nil, h, Max3)
	forged := bytes.Clone(signed)
	forged[0]++
	if n := testing.AllocsPerRun(1000, func() {
		s.Append(dst, h, Max3)
		if _, ok := s.Verify(signed, Max3); !ok {
			t.Error("refused")
		}
		if _, ok := s.Verify(forged, Max3); ok {
			t.Error("accepted")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkAppend(b *testing.B) {
	s := signer(b, Required, uid, secret(1))
	h, dst := bytes.Repeat([]byte{5}, 40), make([]byte, 0, Max3)
	for b.Loop() {
		s.Append(dst, h, Max3)
	}
}

package wire

import (
	"bytes"
	"encoding/hex"
	"testing"
)

func TestPrivateData(t *testing.T) {
	for _, c := range []struct {
		name, data string
		want       PrivateData
		found      bool
	}{
		{"Linux client", "f6ab0e1801010303", PrivateData{true, 4096, 4096}, true},
		{"Linux server", "f6ab0e1801000303", PrivateData{false, 4096, 4096}, true},
		{"behind something else, unaligned", "4d5041f6ab0e18010100ff", PrivateData{true, 1024, 262144}, true},
		{"other flags are ignored", "f6ab0e1801fe0f03", PrivateData{false, 16384, 4096}, true},
		{"bytes behind it", "f6ab0e180101030300000000", PrivateData{true, 4096, 4096}, true},
		{"a false beginning", "f6abf6ab0e1801010303", PrivateData{true, 4096, 4096}, true},
		{"an unknown version first", "f6ab0e1802010303f6ab0e1801010101", PrivateData{true, 2048, 2048}, true},
		{"nothing", "", DefaultPrivateData, false},
		{"something else", "0011223344556677", DefaultPrivateData, false},
		{"cut", "f6ab0e18010103", DefaultPrivateData, false},
		{"unknown version", "f6ab0e1802010303", DefaultPrivateData, false},
		{"version 0", "f6ab0e1800010303", DefaultPrivateData, false},
	} {
		b, err := hex.DecodeString(c.data)
		if err != nil {
			t.Fatal(err)
		}
		got, found := ParsePrivateData(b)
		if got != c.want || found != c.found {
			t.Errorf("%s: %+v %v", c.name, got, found)
		}
	}
	for _, p := range []PrivateData{{true, 4096, 4096}, {false, 1024, 262144}} {
		if got, ok := ParsePrivateData(p.Append(nil)); !ok || got != p {
			t.Errorf("%+v came back as %+v", p, got)
		}
	}
	if got := hex.EncodeToString(PrivateData{true, 4096, 4096}.Append(nil)); got != "f6ab0e1801010303" {
		t.Error(got)
	}
}

func TestCheckThreshold(t *testing.T) {
	for n, ok := range map[int]bool{0: false, 1023: false, 1024: true, 1025: false, 4096: true, 262144: true, 263168: false, -1024: false} {
		if err := CheckThreshold(n); (err == nil) != ok {
			t.Errorf("%d: %v", n, err)
		}
	}
}

func FuzzPrivateData(f *testing.F) {
	f.Add([]byte("\xf6\xab\x0e\x18\x01\x01\x03\x03"))
	f.Add([]byte("xx\xf6\xab\x0e\x18\x01\x01\x03\x03yy"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, ok := ParsePrivateData(data)
		if CheckThreshold(p.SendSize) != nil || CheckThreshold(p.ReceiveSize) != nil {
			t.Fatalf("%+v", p)
		}
		if ok && !bytes.Contains(data, privateMagic) {
			t.Fatal("found without magic")
		}
	})
}

package sign

import (
	"bytes"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func encoded(b byte) string { return base64.StdEncoding.EncodeToString(secret(b)) }

func TestParseKeys(t *testing.T) {
	tests := []struct {
		name, text string
		want       string // the first bytes of the keys
		err        string
	}{
		{"one", encoded(1), "\x01", ""},
		{"several", "# new\n" + encoded(1) + "\n\n  " + encoded(2) + "\t# old\r\n" + encoded(3) + "\n", "\x01\x02\x03", ""},
		{"long", base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{9}, 100)), "\x09", ""},
		{"none", "# nothing\n\n", "", "no key in 2 lines"},
		{"empty", "", "", "0 lines"},
		{"no base64", encoded(1) + "\n\nkey: " + encoded(2), "", "line 3 is not base64"},
		{"no padding", strings.TrimRight(encoded(1), "="), "", "line 1 is not base64"},
		{"short", "#\n" + base64.StdEncoding.EncodeToString(secret(1)[1:]), "", "line 2: the key has 31 bytes, at least 32"},
		{"too many", strings.Repeat(encoded(1)+"\n", MaxKeys+1), "", "line 17: more than 16 keys"},
		{"too long", strings.Repeat("#\n", maxFile), "", "more than 65536 bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			keys, err := ParseKeys([]byte(tt.text))
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error is %v, want one that says %q", err, tt.err)
				}
				return
			}
			var got []byte
			for _, k := range keys {
				got = append(got, k[0])
			}
			if err != nil || string(got) != tt.want {
				t.Errorf("keys %x, error %v", keys, err)
			}
		})
	}
}

func TestLoadKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	if _, err := LoadKeys(path); err == nil {
		t.Error("no file, and no error")
	}
	for text, ok := range map[string]bool{encoded(1): true, "?": false, strings.Repeat("#", 2*maxFile): false} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if keys, err := LoadKeys(path); (err == nil) != ok || ok && !bytes.Equal(keys[0], secret(1)) {
			t.Errorf("%.40s: %x, %v", text, keys, err)
		}
	}
}

func FuzzParseKeys(f *testing.F) {
	f.Add([]byte("# key\n" + encoded(1) + "\n"))
	f.Add([]byte("AAAA\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		keys, err := ParseKeys(text)
		if (err == nil) != (len(keys) > 0) || len(keys) > MaxKeys {
			t.Fatalf("%d keys, error %v", len(keys), err)
		}
		for _, k := range keys {
			if len(k) < MinKey {
				t.Fatalf("key of %d bytes", len(k))
			}
		}
	})
}

package pattern

import "testing"

func TestFiles(t *testing.T) {
	lengths, remainders, names := map[int]bool{}, map[[2]int]bool{}, map[string]bool{}
	for _, f := range Files() {
		lengths[f.Length] = true
		remainders[[2]int{f.Length % 4, f.Offset % 4}] = true
		if names[f.Name()] {
			t.Errorf("%s is there twice", f.Name())
		}
		names[f.Name()] = true
		if f.Length > 0 && len(f.Content(1)) != f.Offset+f.Length {
			t.Errorf("%s has %d bytes", f.Name(), len(f.Content(1)))
		}
	}
	for n := range 71 {
		if !lengths[n] {
			t.Errorf("no file of %d bytes", n)
		}
	}
	for _, n := range []int{4091, 4096, 4101, 65531, 65541, 1<<20 - 5, 1<<20 + 5} {
		if !lengths[n] {
			t.Errorf("no file of %d bytes", n)
		}
	}
	if len(remainders) != 16 {
		t.Errorf("%d combinations of length and offset modulo 4, must be 16", len(remainders))
	}
}

func TestLengths(t *testing.T) {
	lengths, remainders, sum := map[int]bool{}, map[int]bool{}, 0
	for _, n := range Lengths() {
		if n < 1 || n > 1<<20 {
			t.Errorf("%d bytes cannot be had by one call", n)
		}
		lengths[n] = true
		remainders[n%4] = true
		sum += n
	}
	if stream := Stream(); len(stream) != sum || sum > 16<<20 {
		t.Errorf("the stream has %d bytes, must have %d, and not too many", len(stream), sum)
	}
	for _, n := range []int{4095, 64 << 10, 64<<10 + 1, 128 << 10, 1 << 20} {
		if !lengths[n] {
			t.Errorf("no call of %d bytes", n)
		}
	}
	if len(remainders) != 4 {
		t.Errorf("%d remainders modulo 4, must be all", len(remainders))
	}
}

func TestDiffer(t *testing.T) {
	for _, c := range []struct{ got, want, says string }{
		{"", "", ""},
		{"abc", "abc", ""},
		{"abc", "abd", "differs at byte 2 of 3: 0x63, must be 0x64"},
		{"ab", "abc", "has 2 bytes, must have 3"},
		{"abcd", "abc", "has 4 bytes, must have 3"},
	} {
		if says := Differ([]byte(c.got), []byte(c.want)); says != c.says {
			t.Errorf("Differ(%q, %q) = %q, must be %q", c.got, c.want, says, c.says)
		}
	}
	if f := (File{3, 70}); Differ(f.Data(1), f.Data(2)) == "" || Differ(f.Data(1), File{2, 70}.Data(1)) == "" {
		t.Error("different data are the same")
	}
}

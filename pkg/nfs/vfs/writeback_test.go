package vfs

import "testing"

// TestFresh: writes of a long file lead to its writeback, also a little out of order; others do
// not.
func TestFresh(t *testing.T) {
	const mib = 1 << 20
	for name, c := range map[string]struct {
		at   func(i int64) int64
		want bool
	}{
		"one after the other": {func(i int64) int64 { return i * mib }, true},
		"neighbours change":   {func(i int64) int64 { return (i ^ 1) * mib }, true},
		"backwards":           {func(i int64) int64 { return (1000 - i) * mib }, true},
		"the same again":      {func(int64) int64 { return 0 }, false},
		"far apart":           {func(i int64) int64 { return i * 17 * mib }, false},
	} {
		var f fresh
		covered := map[int64]bool{}
		for i := range int64(64) {
			from, length := f.add(c.at(i), mib)
			if length < 0 || length > 2*earlyWriteback {
				t.Fatalf("%s: a range of %d bytes", name, length)
			}
			for at := from; at < from+length; at += mib {
				covered[at] = true
			}
		}
		if (len(covered) > 0) != c.want {
			t.Errorf("%s: %d MiB of 64 were written back", name, len(covered))
		}
		for i := range int64(64) {
			if c.want && !covered[c.at(i)] {
				t.Errorf("%s: the write at %d was left out", name, c.at(i))
			}
		}
	}
}

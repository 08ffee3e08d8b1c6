package oncrpc

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
	"sluice.dev/sluice/pkg/bufpool"
)

// marked returns b as a record of fragments of the given lengths, and one more for the rest.
func marked(b []byte, fragments ...int) (s []byte) {
	for _, n := range fragments {
		if n < len(b) {
			s = append(binary.BigEndian.AppendUint32(s, uint32(n)), b[:n]...)
			b = b[n:]
		}
	}
	s = binary.BigEndian.AppendUint32(s, uint32(len(b))|lastFragment)
	return append(s, b...)
}

// unmark is the reference: it cuts a whole stream into records.
func unmark(s []byte, limit int) (records [][]byte, bad bool) {
	var rec []byte
	for fragments := 1; len(s) >= 4; fragments++ {
		v := binary.BigEndian.Uint32(s)
		n := int(v &^ lastFragment)
		if len(rec)+n > limit || fragments > maxFragments {
			return records, true
		}
		if s = s[4:]; n > len(s) {
			return records, false
		}
		rec, s = append(rec, s[:n]...), s[n:]
		if v&lastFragment != 0 {
			records, rec, fragments = append(records, rec), nil, 0
		}
	}
	return records, false
}

// fill returns n bytes that depend on seed and on their position, so that a misplaced one shows.
func fill(n, seed int) []byte {
	b := make([]byte, n, n+8)
	for i := 0; i < n; i += 8 {
		binary.BigEndian.PutUint64(b[i:i+8:cap(b)], uint64(i+seed+1)*0x9e3779b97f4a7c15)
	}
	return b[:n:n]
}

// run feeds stream to a new reader in pieces of the lengths that cut returns, and collects the
// records. hold is the number of records kept before they are compared and released. skip selects
// the large records to skip.
func run(t testing.TB, stream []byte, limit, hold int, cut func() int, copyOut func() bool, skip func() bool) (records [][]byte, skips int, failed error) {
	t.Helper()
	pool := bufpool.New(0)
	r := newReader(pool, 0, limit)
	type kept struct {
		m Message
		b []byte
	}
	var held []kept
	release := func() {
		for i := range held {
			if !bytes.Equal(bytes.Join(held[i].m.Stream, nil), held[i].b) {
				t.Fatal("a record changed after it was handed out")
			}
			held[i].m.Release()
		}
		held = held[:0]
	}
	for len(stream) > 0 && failed == nil {
		if len(stream)%3 == 0 {
			r.rest()
		}
		a, b, err := r.space()
		if err != nil {
			t.Fatal(err)
		}
		if len(a)+len(b) == 0 {
			t.Fatal("no space")
		}
		n := min(max(1, cut()), len(stream), len(a)+len(b))
		copy(b, stream[copy(a, stream[:n]):n])
		stream = stream[n:]
		r.filled(n)
		for more := true; more; {
			var m Message
			ev, err := r.next(&m, copyOut())
			switch {
			case err != nil:
				failed, more = err, false
			case ev == needBytes:
				more = false
			case ev == large:
				if r.length() <= smallRecord {
					t.Fatalf("a record of %d bytes wants memory of its own", r.length())
				}
				switch {
				case r.begun:
					if have := r.total - r.left; have < firstPart && !r.complete() {
						t.Fatalf("asked again after %d bytes", have)
					}
					r.admit()
				case skip():
					skips++
					r.skip()
				case len(stream)%2 == 0:
					r.begin()
				default:
					r.admit()
				}
			case ev == whole:
				rec := bytes.Join(m.Stream, nil)
				records = append(records, rec)
				held = append(held, kept{m, bytes.Clone(rec)})
				if len(held) > hold {
					release()
				}
			}
		}
	}
	release()
	r.release()
	if err := pool.Close(); err != nil {
		t.Fatal(err)
	}
	return records, skips, failed
}

func never() bool { return false }

func TestReader(t *testing.T) {
	small, medium, big := fill(100, 1), fill(smallRecord, 2), fill(300_000, 3)
	huge := fill(bufpool.MaxSize+100_001, 4)
	var many []byte
	for i := range 500 {
		many = append(many, marked(fill(40+i, i))...)
	}
	for name, stream := range map[string][]byte{
		"small":           marked(small),
		"empty":           append(marked(nil), marked(small)...),
		"many":            many,
		"medium":          append(marked(medium), marked(fill(smallRecord+1, 5))...),
		"big":             append(marked(big), marked(small)...),
		"bigs":            append(append(append(marked(big), marked(fill(70_000, 6))...), marked(small)...), marked(big)...),
		"huge":            append(marked(huge), marked(small)...),
		"fragments":       append(marked(small, 1, 2, 0, 3, 4, 50), marked(small)...),
		"big fragments":   append(marked(big, 3, 1, 100_000, 5, 7000, 60_000, 60_000), marked(small)...),
		"equal fragments": append(marked(big, 8192, 8192, 8192, 8192, 8192, 8192, 8192, 8192, 8192, 8192), marked(small)...),
		"huge fragments":  marked(huge, 5, bufpool.MaxSize+10, 50_000),
		"ends empty":      append(marked(small), 0, 0, 0, 5, 1, 2, 3, 4, 5, 0x80, 0, 0, 0, 0x80, 0, 0, 1, 9),
		"cut in the mark": append(marked(small), 0x80, 0, 0),
		"cut":             append(marked(small), marked(big)[:100_000]...),
		"many zeros":      append(bytes.Repeat([]byte{0, 0, 0, 0}, maxFragments-1), marked(small)...),
	} {
		want, bad := unmark(stream, 8<<20)
		if bad {
			t.Fatal("the reference refuses it")
		}
		for cutName, cut := range map[string]func() int{
			"whole":  func() int { return 1 << 30 },
			"1448":   func() int { return 1448 },
			"random": func() int { return rand.IntN(20_000) },
			"mixed":  func() int { return 1 << rand.IntN(18) },
		} {
			for _, copyOut := range []bool{false, true} {
				got, _, err := run(t, stream, 8<<20, 40, cut, func() bool { return copyOut }, never)
				if err != nil {
					t.Fatalf("%s, %s: %v", name, cutName, err)
				}
				if !equalRecords(got, want) {
					t.Errorf("%s, %s, copied %v: got %d records, want %d", name, cutName, copyOut, len(got), len(want))
				}
			}
		}
		if len(stream) < 400_000 {
			if got, _, err := run(t, stream, 8<<20, 3, func() int { return 1 }, never, never); err != nil || !equalRecords(got, want) {
				t.Errorf("%s, byte by byte: %v, got %d records, want %d", name, err, len(got), len(want))
			}
		}
	}
}

func equalRecords(a, b [][]byte) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !bytes.Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

func TestReaderBad(t *testing.T) {
	for name, stream := range map[string][]byte{
		"too long":                {0x80, 0x01, 0, 1},
		"largest length":          {0xff, 0xff, 0xff, 0xff},
		"fragments too long":      append(marked(make([]byte, 65_536), 65_535)[:65_539], 0x80, 0, 0, 2),
		"too many fragments":      bytes.Repeat([]byte{0, 0, 0, 0}, maxFragments+1),
		"too many of one byte":    bytes.Repeat([]byte{0, 0, 0, 1, 9}, maxFragments+1),
		"HTTP":                    []byte("GET / HTTP/1.1\r\n\r\n"),
		"huge fragment to follow": {0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff},
	} {
		for _, n := range []int{1, 7, 1 << 20} {
			records, _, err := run(t, stream, 65_536, 1, func() int { return n }, never, never)
			if !errors.Is(err, ErrRecord) || len(records) != 0 {
				t.Errorf("%s: %v, %d records", name, err, len(records))
			}
		}
	}
}

// TestReaderSkip: skipped records are gone, the others unchanged.
func TestReaderSkip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var stream []byte
		var want [][]byte
		bigs := 0
		for i := range rapid.IntRange(1, 8).Draw(rt, "records") {
			b := fill(rapid.SampledFrom([]int{8, 40, 1000, 15_000, 40_000, 90_000}).Draw(rt, "length"), i)
			stream = append(stream, marked(b, rapid.SliceOfN(rapid.IntRange(0, 30_000), 0, 3).Draw(rt, "fragments")...)...)
			if len(b) <= smallRecord {
				want = append(want, b)
			} else {
				bigs++
			}
		}
		n := rapid.IntRange(1, 30_000).Draw(rt, "cut")
		// With copyOut no large record is a view, so next returns large for each.
		got, skips, err := run(t, stream, 1<<20, 2, func() int { return n }, func() bool { return true }, func() bool { return true })
		if err != nil || skips != bigs || !equalRecords(got, want) {
			rt.Fatalf("%v: %d records, want %d; %d skipped, want %d", err, len(got), len(want), skips, bigs)
		}
	})
}

// TestReaderCopies: of a stream of large records only their beginnings are copied.
func TestReaderCopies(t *testing.T) {
	var stream []byte
	const n, size = 50, 64<<10 + 128
	for i := range n {
		stream = append(stream, marked(fill(size, i))...)
	}
	pool := bufpool.New(0)
	r := newReader(pool, 64<<10, 1<<20)
	direct, records := 0, 0
	var m Message
	for len(stream) > 0 {
		a, b, err := r.space()
		if err != nil {
			t.Fatal(err)
		}
		k := copy(a, stream)
		direct += k
		k += copy(b, stream[k:])
		stream = stream[k:]
		r.filled(k)
		for ev := large; ev != needBytes; {
			if ev, err = r.next(&m, false); err != nil {
				t.Fatal(err)
			}
			switch ev {
			case large:
				r.admit()
			case whole:
				if len(m.Stream) != 1 {
					t.Fatalf("a record of one fragment lies in %d pieces", len(m.Stream))
				}
				m.Release()
				records++
			}
		}
	}
	if copied := n*size - direct; records != n || copied > 64<<10+n*tailRead {
		t.Errorf("%d records, %d bytes were copied", records, copied)
	}
}

func FuzzReader(f *testing.F) {
	f.Add(marked(fill(100, 1), 1, 2, 3), uint64(1), uint16(5))
	f.Add(append(marked(fill(20_000, 1)), marked(fill(10, 2))...), uint64(2), uint16(1448))
	f.Add(marked(fill(40_000, 1), 5, 16_000, 8000), uint64(3), uint16(9000))
	f.Add([]byte{0, 0, 0, 0, 0x80, 0, 0, 0}, uint64(4), uint16(1))
	f.Fuzz(func(t *testing.T, stream []byte, seed uint64, most uint16) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		want, bad := unmark(stream, 50_000)
		got, _, err := run(t, stream, 50_000, int(seed%5), func() int { return rnd.IntN(int(most) + 1) }, func() bool { return rnd.IntN(2) == 0 }, never)
		if bad != (err != nil) || !equalRecords(got, want) {
			t.Fatalf("%v, %d records; want failure %v, %d records", err, len(got), bad, len(want))
		}
	})
}

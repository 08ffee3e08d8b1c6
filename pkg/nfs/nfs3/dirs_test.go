package nfs3_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"sluice.dev/sluice/pkg/internal/race"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/nfs3/nfs3test"
	"sluice.dev/sluice/pkg/xdr"
)

// Within any bounds, a list is a prefix of the entries, and eof only when complete.
func TestListBounds(t *testing.T) {
	for _, procedure := range []int{nfs3.ProcReaddir, nfs3.ProcReaddirPlus} {
		t.Run(nfs3test.NFS[procedure].Name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				m := nfs3test.NFS[procedure].DrawRes(t)
				var l *nfs3test.List
				switch m := m.(type) {
				case *nfs3test.ReaddirRes:
					l = &m.List
				case *nfs3test.ReaddirPlusRes:
					l = &m.List
				}
				l.Head.Status = nfs3.OK
				full, _ := nfs3test.Encode(m)
				l.Count = uint32(rapid.IntRange(0, len(full)+8).Draw(t, "count"))
				l.DirCount = uint32(rapid.IntRange(0, len(full)).Draw(t, "dircount"))
				if !l.Plus {
					l.DirCount = l.Count
				}
				stream, _ := nfs3test.Encode(m)

				got := nfs3test.NFS[procedure].NewRes()
				var d xdr.Decoder
				d.ResetBytes(stream)
				if got.Decode(&d); d.Err() != nil || d.Left() != 0 {
					t.Fatal(d.Err(), d.Left())
				}
				var g *nfs3test.List
				switch m := got.(type) {
				case *nfs3test.ReaddirRes:
					g = &m.List
				case *nfs3test.ReaddirPlusRes:
					g = &m.List
				}
				if g.Head.Status == nfs3.ErrTooSmall {
					first := len(full) // the smallest size of a result with one entry
					if len(l.Entries) > 0 {
						one := *l
						one.Entries, one.Count, one.DirCount = l.Entries[:1], nfs3.MaxData, nfs3.MaxData
						b, _ := nfs3test.Encode(&one)
						first = len(b)
					}
					if uint32(first-4) <= l.Count {
						t.Fatalf("TOOSMALL, though %d bytes are allowed and the first entry takes %d", l.Count, first-4)
					}
					return
				}
				if uint32(len(stream)-4) > l.Count {
					t.Fatalf("result has %d bytes, count is %d", len(stream)-4, l.Count)
				}
				if g.EOF != (l.EOF && len(g.Entries) == len(l.Entries)) {
					t.Fatalf("eof is %v with %d of %d entries", g.EOF, len(g.Entries), len(l.Entries))
				}
				names := 0
				for i := range g.Entries {
					if g.Entries[i].Cookie != l.Entries[i].Cookie || string(g.Entries[i].Name) != string(l.Entries[i].Name) {
						t.Fatalf("entry %d is another", i)
					}
					names += 20 + xdr.Round(len(g.Entries[i].Name))
				}
				if len(g.Entries) > 1 && names > int(l.DirCount) {
					t.Fatalf("ids, names and cookies have %d bytes, dircount is %d", names, l.DirCount)
				}
				if len(g.Entries) == 0 && len(l.Entries) > 0 {
					t.Fatal("no entry, and no TOOSMALL")
				}
			})
		})
	}
}

// The result also ends with the encoder's memory, and does not allocate.
func TestListWriterRoom(t *testing.T) {
	var e xdr.Encoder
	memory := make([]byte, 0, 600)
	head := nfs3.ReaddirRes{Attr: nfs3.PostOpAttr{Present: true}}
	entry := nfs3.EntryPlus{Entry: nfs3.Entry{Name: []byte("name")}, Attr: nfs3.PostOpAttr{Present: true}}
	var w nfs3.ListWriter
	n := testing.AllocsPerRun(10, func() {
		e.Reset(memory, nil)
		w.Begin(&e, &head, nfs3.MaxData, nfs3.MaxData)
		for entry.Cookie = 1; w.AddPlus(&entry); entry.Cookie++ {
		}
	})
	if w.End(true) != nfs3.OK || e.Overflow() || w.Len() != 4 {
		t.Fatalf("%d entries, overflow %v", w.Len(), e.Overflow())
	}
	if n != 0 && !race.Enabled {
		t.Fatalf("%v allocations", n)
	}
	e.Reset(make([]byte, 0, 100), nil) // not even the head fits
	w.Begin(&e, &head, nfs3.MaxData, nfs3.MaxData)
	if head.Attr.Present = false; w.AddPlus(&entry) || w.End(true) != nfs3.ErrTooSmall || e.Overflow() {
		t.Fatal("an entry behind a head that did not fit")
	}
}

func TestStatus(t *testing.T) {
	if got, want := nfs3.ErrNoEnt.Error(), "no such file or directory (NFS3ERR_NOENT)"; got != want {
		t.Errorf("%q, must be %q", got, want)
	}
	if got := fmt.Sprint(nfs3.Status(77).String(), nfs3.OK); got != "nfsstat3(77)no error (NFS3_OK)" {
		t.Error(got)
	}
}

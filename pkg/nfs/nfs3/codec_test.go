package nfs3_test

import (
	"bytes"
	"fmt"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"sluice.dev/sluice/pkg/internal/race"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/nfs3/nfs3test"
	"sluice.dev/sluice/pkg/xdr"
)

// each runs f for the arguments and the results of every procedure of both programs.
func each(t *testing.T, f func(t *testing.T, name string, draw func(*rapid.T) nfs3test.Message, empty func() nfs3test.Message)) {
	run := func(prefix string, codecs []nfs3test.Codec) {
		for _, c := range codecs {
			t.Run(prefix+c.Name+"/args", func(t *testing.T) { f(t, prefix+c.Name+"/args", c.DrawArgs, c.NewArgs) })
			t.Run(prefix+c.Name+"/res", func(t *testing.T) { f(t, prefix+c.Name+"/res", c.DrawRes, c.NewRes) })
		}
	}
	run("", nfs3test.NFS[:])
	run("MOUNT-", nfs3test.Mount[:])
	run("NFSACL-", nfs3test.ACL[:])
}

// same compares messages: the slices of data may differ, and an empty one may be nil.
var same = cmp.Options{
	cmp.FilterPath(isData, cmp.Comparer(func(a, b [][]byte) bool {
		return bytes.Equal(bytes.Join(a, nil), bytes.Join(b, nil))
	})),
	cmp.FilterPath(func(p cmp.Path) bool { return !isData(p) }, cmpopts.EquateEmpty()),
	cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Taken" }, cmp.Ignore()),
}

func isData(p cmp.Path) bool {
	_, is := reflect.Zero(p.Last().Type()).Interface().([][]byte)
	return is && (p.Last().String() == ".Data" || p.Last().String() == ".Path")
}

func TestRoundTrip(t *testing.T) {
	each(t, func(t *testing.T, _ string, draw func(*rapid.T) nfs3test.Message, empty func() nfs3test.Message) {
		rapid.Check(t, func(t *rapid.T) {
			m := draw(t)
			stream, items := nfs3test.Encode(m)
			flat := nfs3test.Flatten(stream, items)

			// With its items taken out, and whole in slices of any lengths, decoded over an earlier
			// message.
			got := empty()
			for _, whole := range []bool{false, true} {
				var d xdr.Decoder
				if whole {
					d.Reset(cut(t, flat), nil)
				} else {
					d.Reset(cut(t, stream), items)
				}
				got.Decode(&d)
				if err := d.Err(); err != nil {
					t.Fatalf("decode (whole %v): %v", whole, err)
				}
				if d.Left() != 0 || d.Pos() != len(flat) {
					t.Fatalf("whole %v: %d bytes left at %d of %d", whole, d.Left(), d.Pos(), len(flat))
				}
				if !whole && d.Used() != len(items) {
					t.Fatalf("%d of %d items used", d.Used(), len(items))
				}
				if !whole { // the whole message covers it faster
					if diff := cmp.Diff(m, got, same); diff != "" {
						t.Fatalf("decoded otherwise (-sent +got):\n%s", diff)
					}
				}
				again, taken := nfs3test.Encode(got)
				if !bytes.Equal(nfs3test.Flatten(again, taken), flat) {
					t.Fatalf("whole %v: encoded again it is\n%x\nwas\n%x", whole, nfs3test.Flatten(again, taken), flat)
				}
			}

			// Every truncation fails. (A missing round-up at the very end is legal; see
			// xdr.Decoder.Bulk.)
			if len(flat) >= 4 {
				n := rapid.IntRange(0, len(flat)-4).Draw(t, "cut short")
				var d xdr.Decoder
				d.ResetBytes(flat[:n])
				if empty().Decode(&d); d.Err() == nil {
					t.Fatalf("decoded from %d of %d bytes", n, len(flat))
				}
			}
		})
	})
}

// cut cuts b into slices of any lengths, empty ones among them.
func cut(t *rapid.T, b []byte) (out [][]byte) {
	for len(b) > 0 {
		n := rapid.IntRange(0, len(b)).Draw(t, "slice")
		out = append(out, b[:n:n])
		b = b[n:]
		if len(out) > 8 {
			return append(out, b)
		}
	}
	return out
}

func TestBadValues(t *testing.T) {
	handle := "00000004 01020304"
	dirOp := handle + "00000001 61000000"
	cases := []struct {
		name, hex, reason string
		m                 nfs3test.Message
	}{
		{"handle of 65 bytes", "00000041" + repeat("00", 68), "length 65 exceeds the limit of 64", &nfs3.HandleArgs{}},
		{"name of 4097 bytes", handle + "00001001" + repeat("61", 4100), "length 4097 exceeds the limit of 4096", &nfs3.LookupArgs{}},
		{"createmode 3", dirOp + "00000003", "createmode3 is 3, must be 0 to 2", &nfs3.CreateArgs{}},
		{"stable_how 3", handle + "0000000000000000 00000000 00000003 00000000", "stable_how is 3, must be 0 to 2", &nfs3.WriteArgs{}},
		{"count against data", handle + "0000000000000000 00000005 00000000 00000004 01020304", "WRITE says it has 5 bytes, its data are 4", &nfs3.WriteArgs{}},
		{"data beyond 1 MiB", handle + "0000000000000000 00100001 00000000 00100001", "length 1048577 exceeds the limit of 1048576", &nfs3.WriteArgs{}},
		{"set_it 2", handle + "00000002", "boolean is 2, must be 0 or 1", &nfs3.SetAttrArgs{}},
		{"time_how 3", handle + repeat("00", 16) + "00000003", "time_how is 3, must be 0 to 2", &nfs3.SetAttrArgs{}},
		{"type 0", dirOp + "00000000", "file type is 0, must be 1 to 7", &nfs3.MknodArgs{}},
		{"type 8 in attributes", "00000000 00000008" + repeat("00", 80), "file type is 8, must be 1 to 7", &nfs3.GetAttrRes{}},
		{"count of READ", "00000000 00000000 00000001 00000001 00000000", "READ says it has 1 bytes, its data are 0", &nfs3.ReadRes{}},
		{"33 flavors", "00000000" + handle + "00000021" + repeat("00", 33*4), "MNT offers 33 flavors of authentication, at most 32 are understood", &nfs3.MountRes{}},
		{"endless DUMP", repeat("00000001 00000000 00000000", nfs3.MaxMountList+1), "DUMP has more than 4096 entries", &nfs3.DumpRes{}},
		{"endless EXPORT", repeat("00000001 00000000 00000000", nfs3.MaxMountList+1), "EXPORT has more than 4096 entries", &nfs3.ExportRes{}},
		{"endless groups", "00000001 00000000" + repeat("00000001 00000000", nfs3.MaxMountList+1), "EXPORT has more than 4096 entries", &nfs3.ExportRes{}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var d xdr.Decoder
			d.ResetBytes(unhex(t, c.hex))
			c.m.Decode(&d)
			var e *xdr.Error
			if err := d.Err(); err == nil || !asError(err, &e) || e.Reason != c.reason {
				t.Fatalf("error is %v, must say %q", d.Err(), c.reason)
			}
		})
	}
}

// The hot procedures do not allocate, on either side.
func TestAllocs(t *testing.T) {
	var (
		e       xdr.Encoder
		d       xdr.Decoder
		out     = make([]byte, 0, 4096)
		items   = make([]xdr.Item, 0, 4)
		streams = make([][]byte, 1)
		h       = nfs3.Handle("0123456789abcdef")
		data    = [][]byte{make([]byte, 8192)}
	)
	attr := nfs3.PostOpAttr{Present: true, Attr: nfs3.Attr{Type: nfs3.Reg}}
	messages := []nfs3test.Message{
		&nfs3.GetAttrArgs{Object: h}, &nfs3.GetAttrRes{Attr: attr.Attr},
		&nfs3.LookupArgs{Dir: h, Name: []byte("name")}, &nfs3.LookupRes{Object: h, Attr: attr},
		&nfs3.AccessArgs{Object: h, Access: 63}, &nfs3.AccessRes{Attr: attr},
		&nfs3.ReadArgs{File: h, Count: 8192}, &nfs3.ReadRes{Attr: attr, Count: 8192, Data: data},
		&nfs3.WriteArgs{File: h, Count: 8192, Data: data}, &nfs3.WriteRes{Wcc: nfs3.WccData{After: attr}, Count: 8192},
		&nfs3.CommitArgs{File: h}, &nfs3.CommitRes{},
	}
	for _, m := range messages {
		t.Run(fmt.Sprintf("%T", m), func(t *testing.T) {
			n := testing.AllocsPerRun(100, func() {
				e.Reset(out, items)
				m.Encode(&e)
				streams[0] = e.Bytes()
				d.Reset(streams, e.Items())
				m.Decode(&d)
			})
			if d.Err() != nil || e.Overflow() {
				t.Fatal(d.Err(), e.Overflow())
			}
			if n != 0 && !race.Enabled {
				t.Fatalf("%v allocations", n)
			}
		})
	}
}

func TestOverflow(t *testing.T) {
	for _, m := range []nfs3test.Message{&nfs3.GetAttrRes{}, &nfs3.WccRes{Wcc: nfs3.WccData{HasBefore: true}}, &nfs3.CreateArgs{Where: nfs3.DirOpArgs{Name: []byte("x")}}} {
		stream, _ := nfs3test.Encode(m)
		for n := range stream {
			var e xdr.Encoder
			e.Reset(make([]byte, 0, n), nil)
			if m.Encode(&e); !e.Overflow() {
				t.Errorf("%T of %d bytes fits in %d", m, len(stream), n)
			}
		}
	}
}

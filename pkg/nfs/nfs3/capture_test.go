package nfs3_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/nfs3/nfs3test"
	"sluice.dev/sluice/pkg/xdr"
)

// captured is a message of testdata/linux-6.1.txt.
type captured struct {
	procedure int
	reply     bool
	stream    []byte
	items     []xdr.Item
}

func (c *captured) message() nfs3test.Message {
	if c.reply {
		return nfs3test.NFS[c.procedure].NewRes()
	}
	return nfs3test.NFS[c.procedure].NewArgs()
}

func readCaptured(t testing.TB) (out []captured) {
	t.Helper()
	text, err := os.ReadFile("testdata/linux-6.1.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Fields(line)
		c := captured{procedure: -1, reply: f[1] == "reply"}
		for i := range nfs3test.NFS {
			if nfs3test.NFS[i].Name == f[0] {
				c.procedure = i
			}
		}
		if f[2] != "-" {
			var it xdr.Item
			if _, err := fmt.Sscanf(f[2], "%d+%d", &it.Position, &it.Length); err != nil {
				t.Fatal(err)
			}
			it.Data = [][]byte{make([]byte, it.Length)}
			c.items = append(c.items, it)
		}
		if c.stream, err = hex.DecodeString(f[3]); err != nil || c.procedure < 0 {
			t.Fatal(line, err)
		}
		out = append(out, c)
	}
	list, err := os.ReadFile("testdata/linux-6.1-readdirplus.bin")
	if err != nil {
		t.Fatal(err)
	}
	return append(out, captured{procedure: nfs3.ProcReaddirPlus, reply: true, stream: list})
}

// The messages between two Linux kernels are decoded, and encoded to the same bytes.
func TestCaptured(t *testing.T) {
	all := readCaptured(t)
	if len(all) < 40 {
		t.Fatalf("%d messages", len(all))
	}
	for i, c := range all {
		t.Run(fmt.Sprintf("%d-%s", i, nfs3test.NFS[c.procedure].Name), func(t *testing.T) {
			m := c.message()
			var d xdr.Decoder
			d.Reset([][]byte{c.stream}, c.items)
			m.Decode(&d)
			// Linux ends its answer to READ with the count word, and its WRITE call, which ends
			// with the data, too.
			if d.Err() != nil || d.Left() != 0 || d.Used() != len(c.items) {
				t.Fatalf("%v, %d bytes left, %d items used", d.Err(), d.Left(), d.Used())
			}
			got, items := nfs3test.Encode(m)
			want := c.stream
			if len(c.items) == 0 {
				got = nfs3test.Flatten(got, items)
			} else if len(items) != 1 || items[0].Position != c.items[0].Position || items[0].Length != c.items[0].Length {
				t.Fatalf("items are %+v, were %+v", items, c.items)
			}
			if !bytes.Equal(got, want) {
				t.Fatalf("encoded as\n%x\nwas\n%x", got, want)
			}
		})
	}
}

// Some in full, as decoded by tshark.
func TestCapturedFields(t *testing.T) {
	all := readCaptured(t)
	find := func(procedure int, reply bool, n int) nfs3test.Message {
		for _, c := range all {
			if c.procedure != procedure || c.reply != reply {
				continue
			}
			if n--; n < 0 {
				m := c.message()
				var d xdr.Decoder
				d.Reset([][]byte{c.stream}, c.items)
				m.Decode(&d)
				return m
			}
		}
		t.Fatalf("no such message of %s", nfs3test.NFS[procedure].Name)
		return nil
	}
	check := func(name string, got, want any) {
		t.Helper()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %+v, must be %+v", name, got, want)
		}
	}
	root := nfs3.Handle(unhex(t, "0100010000000000"))
	rename := find(nfs3.ProcRename, false, 0).(*nfs3.RenameArgs)
	check("RENAME", *rename, nfs3.RenameArgs{From: nfs3.DirOpArgs{Dir: root, Name: []byte("w3")}, To: nfs3.DirOpArgs{Dir: root, Name: []byte("w3b")}})
	create := find(nfs3.ProcCreate, false, 0).(*nfs3.CreateArgs)
	check("CREATE", *create, nfs3.CreateArgs{Where: nfs3.DirOpArgs{Dir: root, Name: []byte("w3")}, Attrs: nfs3.SetAttrs{SetMode: true, Mode: 0o644}})
	chmod := find(nfs3.ProcSetAttr, false, 0).(*nfs3.SetAttrArgs)
	check("chmod", chmod.New, nfs3.SetAttrs{SetMode: true, Mode: 0o600})
	truncate := find(nfs3.ProcSetAttr, false, 1).(*nfs3.SetAttrArgs)
	check("truncate", truncate.New, nfs3.SetAttrs{SetSize: true, Size: 7, MtimeHow: nfs3.SetToServerTime})
	list := find(nfs3.ProcReaddirPlus, true, 0).(*nfs3test.ReaddirPlusRes)
	check("entries", len(list.Entries), 302)
	check("eof", list.EOF, true)
	read := find(nfs3.ProcRead, true, 0).(*nfs3.ReadRes)
	check("READ", []any{read.Count, read.EOF, read.Taken, read.Attr.Attr.Size}, []any{uint32(200003), true, true, uint64(200003)})
	link := find(nfs3.ProcSymlink, false, 0).(*nfs3.SymlinkArgs)
	check("link", link.Length, 1500)
}

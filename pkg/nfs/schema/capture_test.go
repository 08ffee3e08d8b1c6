package schema

import (
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"

	"sluice.dev/sluice/pkg/xdr"
)

// captured is a message of testdata/linux-6.1.txt.
type captured struct {
	proc   Proc
	dir    direction
	stream []byte
	items  []xdr.Item
	placed []int
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
		var c captured
		var dir, items, data string
		if _, err := fmt.Sscan(line, &c.proc.Program, &c.proc.Version, &c.proc.Procedure, &dir, &items, &data); err != nil {
			t.Fatal(err)
		}
		c.proc.Callback = c.proc.Program == 0x40000000
		c.dir = dir == "reply"
		if c.stream, err = hex.DecodeString(data); err != nil {
			t.Fatal(err)
		}
		var it xdr.Item
		if n, _ := fmt.Sscanf(items, "%d+%d", &it.Position, &it.Length); n == 2 {
			c.items = append(c.items, it)
		}
		var n int
		if _, err := fmt.Sscanf(items, "placed:%d", &n); err == nil {
			c.placed = append(c.placed, n)
		}
		out = append(out, c)
	}
	return out
}

func (c *captured) walk(w *Walker, d *xdr.Decoder) error {
	if c.placed != nil {
		return w.ResultsPlaced(c.proc, d, c.placed)
	}
	return w.walk(c.proc, d, c.dir)
}

// The messages between two Linux kernels are walked to their ends.
func TestCaptured(t *testing.T) {
	all := readCaptured(t)
	if len(all) < 90 {
		t.Fatalf("%d messages", len(all))
	}
	ops := map[uint32]bool{}
	var w Walker
	for i, c := range all {
		var d xdr.Decoder
		d.Reset([][]byte{c.stream}, c.items)
		err := c.walk(&w, &d)
		if err != nil || d.Left() != 0 || d.Used() != len(c.items) {
			t.Errorf("message %d, %+v %v: %v, %d bytes left of %d, %d items used", i, c.proc, c.dir, err, d.Left(), len(c.stream), d.Used())
			continue
		}
		for _, op := range w.Ops {
			ops[op.Code] = true
		}
		if len(c.items)+len(c.placed) == 0 {
			checkSpans(t, &w, c.stream, 0, len(c.stream))
		}
	}
	for _, code := range []uint32{OpExchangeID, OpCreateSession, OpSequence, OpOpen, OpRead, OpWrite, OpReaddir, OpCreate, OpRename, OpSetAttr, OpLock, OpClose} {
		if !ops[code] {
			t.Errorf("there is no operation %d among them", code)
		}
	}
}

package nfs4_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"

	. "sluice.dev/sluice/pkg/nfs/nfs4" //nolint:revive // as in codec_test.go
	"sluice.dev/sluice/pkg/xdr"
)

// captured is a COMPOUND or CB_COMPOUND between two Linux kernels.
type captured struct {
	callback, reply bool
	stream          []byte
	items           []xdr.Item
}

// readCaptured reads the messages of version 4 in the captures of pkg/nfs/schema, without replies
// whose data were placed elsewhere.
func readCaptured(t testing.TB) (out []captured) {
	t.Helper()
	text, err := os.ReadFile("../schema/testdata/linux-6.1.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var program, version, procedure uint32
		var dir, items, data string
		if strings.HasPrefix(line, "#") {
			continue
		}
		if _, err := fmt.Sscan(line, &program, &version, &procedure, &dir, &items, &data); err != nil {
			t.Fatal(err)
		}
		c := captured{callback: program == 0x40000000, reply: dir == "reply"}
		if procedure != ProcCompound || !c.callback && (program != Program || version != Version) || strings.HasPrefix(items, "placed") {
			continue
		}
		if c.stream, err = hex.DecodeString(data); err != nil {
			t.Fatal(err)
		}
		var it xdr.Item
		if n, _ := fmt.Sscanf(items, "%d+%d", &it.Position, &it.Length); n == 2 {
			it.Data = [][]byte{make([]byte, it.Length)}
			c.items = append(c.items, it)
		}
		out = append(out, c)
	}
	return out
}

// transcode decodes a message, and encodes it to e. It returns the operations.
func transcode(c *captured, d *xdr.Decoder, e *xdr.Encoder) (codes []uint32, err error) {
	var n uint32
	switch {
	case c.reply:
		var head CompoundRes
		head.Decode(d)
		head.Encode(e)
		n = head.Count
	case c.callback:
		var head CBCompoundArgs
		head.Decode(d)
		head.Encode(e)
		n = head.Count
	default:
		var head CompoundArgs
		head.Decode(d)
		head.Encode(e)
		n = head.Count
	}
	for range n {
		code, status := d.Uint32(), OK
		e.Uint32(code)
		if c.reply {
			status = Status(d.Uint32())
			e.Uint32(uint32(status))
		}
		codes = append(codes, code)
		known, ok := codecs[Op(code)]
		if c.callback {
			known, ok = cbCodecs[CBOp(code)]
		}
		make := known.args
		if c.reply {
			make = known.res
		}
		switch {
		case d.Err() != nil:
			return codes, d.Err()
		case !ok:
			return codes, fmt.Errorf("operation %d has no codec", code)
		case status == ErrDenied:
			make = of[LockDenied]()
		case status != OK && Op(code) != OpSetAttr:
			make = nil
		}
		if make != nil {
			m := make()
			m.Decode(d)
			m.Encode(e)
		}
	}
	return codes, d.Err()
}

// The messages between two Linux kernels are decoded, and encoded to the same bytes.
func TestCaptured(t *testing.T) {
	seen := map[uint32]int{}
	for i, c := range readCaptured(t) {
		var d xdr.Decoder
		d.Reset([][]byte{c.stream}, c.items)
		var e xdr.Encoder
		e.Reset(make([]byte, 0, 1<<17), nil)
		codes, err := transcode(&c, &d, &e)
		if err != nil || d.Left() != 0 || d.Used() != len(c.items) {
			t.Errorf("message %d: %v, %d bytes left of %x", i, err, d.Left(), c.stream)
			continue
		}
		got := e.Bytes()
		if len(c.items) == 0 {
			got = flatten(got, e.Items())
		}
		if !bytes.Equal(got, c.stream) && !withoutZeroWords(got, c.stream) {
			t.Errorf("message %d was encoded as\n%x\nwas\n%x", i, got, c.stream)
		}
		for _, code := range codes {
			seen[code]++
		}
	}
	for _, op := range []Op{OpExchangeID, OpCreateSession, OpSequence, OpOpen, OpRead, OpWrite, OpReaddir, OpCreate, OpRename, OpSetAttr, OpLock, OpClose} {
		if seen[uint32(op)] == 0 {
			t.Errorf("there is no %v among them", op)
		}
	}
}

// withoutZeroWords reports whether b is a but for words of zero, as Linux's server ends its bitmaps
// with, and the counts of the bitmaps.
func withoutZeroWords(b, a []byte) bool {
	differences := 0
	for len(a) >= 4 && len(b) >= 4 {
		x, y := binary.BigEndian.Uint32(a), binary.BigEndian.Uint32(b)
		switch {
		case x == y:
			b = b[4:]
		case x == 0:
		case x <= 3 && y < x:
			differences++
			b = b[4:]
		default:
			return false
		}
		a = a[4:]
	}
	return len(b) == 0 && differences <= 1
}

// No message makes the decoder panic, and every message that it accepts is encoded to itself, but
// for round-ups and words that need not be there.
func FuzzCompound(f *testing.F) {
	for _, c := range readCaptured(f) {
		f.Add(c.callback, c.reply, c.stream)
	}
	f.Fuzz(func(t *testing.T, callback, reply bool, stream []byte) {
		c := captured{callback: callback, reply: reply}
		encoded := func(stream []byte) ([]byte, error) {
			var d xdr.Decoder
			d.ResetBytes(stream)
			var e xdr.Encoder
			e.Reset(make([]byte, 0, 8*len(stream)+4096), nil)
			_, err := transcode(&c, &d, &e)
			return flatten(e.Bytes(), e.Items()), err
		}
		once, err := encoded(stream)
		if err != nil {
			return
		}
		twice, err := encoded(once)
		if err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("%v\n%x\n%x", err, once, twice)
		}
	})
}

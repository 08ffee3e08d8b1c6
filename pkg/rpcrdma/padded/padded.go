// Package padded lays out and reads the payload of RDMA_MSGP (RFC 5666 section 3.9): zeros before
// the data of long opaques, so that the data are aligned in the receiver's buffer. It does no I/O
// and copies nothing.
//
// RFC 5666 leaves open which opaques are padded, and from where offsets count. Sluice has one rule:
//
//   - The data of an eligible argument or result of at least rdma_thresh bytes begin at a multiple
//     of rdma_align, counted from the first byte of the Send. Other opaques are not padded.
//   - No position in a chunk list counts the zeros.
//
// A message that [Choose] lays out means the same to a peer that pads every opaque, unless another
// opaque is as long as the shortest padded one.
package padded

import (
	"fmt"

	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rpcrdma/internal/split"
	"sluice.dev/sluice/pkg/xdr"
)

// Rule are the two words of RDMA_MSGP. An Align of 0 or 1 means no padding; otherwise it is a power
// of two.
type Rule struct{ Align, Threshold int }

// Least is the length of the shortest argument that Choose pads. Names, handles and credentials are
// shorter.
const Least = 1024

// MaxAlign is the largest alignment that Choose uses: a page.
const MaxAlign = 4096

// Choose returns the rule for a call. It returns false if nothing is to be padded. RFC 5666 has
// both "at or above" and "exceeds" for the threshold, so it is one less than the shortest padded
// argument, and no other argument has that length.
func Choose(args []oncrpc.Argument, align int) (r Rule, ok bool) {
	shortest := 0
	for _, a := range args {
		if a.Length >= Least && (shortest == 0 || a.Length < shortest) {
			shortest = a.Length
		}
	}
	if shortest == 0 || align < 2 {
		return Rule{}, false
	}
	for _, a := range args {
		if a.Length == shortest-1 {
			return Rule{}, false
		}
	}
	return Rule{Align: min(align, MaxAlign), Threshold: shortest - 1}, true
}

func (r Rule) applies(length int) bool { return r.Align > 1 && length >= r.Threshold }

// pad is the number of zeros at an offset in the Send.
func (r Rule) pad(offset int) int { return -offset & (r.Align - 1) }

// Append appends to dst the unreduced stream of m, which begins at an offset in the Send, with
// zeros before the padded ones of args. args are in order of position. zeros has MaxAlign zero
// bytes. It returns false if an argument is not where args says.
func (r Rule) Append(dst [][]byte, m *oncrpc.Message, args []oncrpc.Argument, offset int, zeros []byte) ([][]byte, bool) {
	var w split.Splitter
	w.Reset(m, zeros)
	for _, a := range args {
		if !r.applies(a.Length) {
			continue
		}
		var ok bool
		at := len(dst)
		if dst, ok = w.Until(dst, a.Position); !ok {
			return dst, false
		}
		offset += split.Length(dst[at:])
		at = len(dst)
		if n := r.pad(offset); n > 0 {
			dst = append(dst, zeros[:n])
		}
		if dst, ok = w.Take(dst, a.Length); !ok {
			return dst, false
		}
		if n := xdr.Pad(a.Length); n > 0 {
			dst = append(dst, zeros[:n])
		}
		offset += split.Length(dst[at:])
	}
	return w.Rest(dst)
}

// Strip appends to dst the stream of a message of size bytes, whose last part is the stream,
// without the zeros before found opaques. These are in order of position, as a decoder finds them
// after [xdr.Decoder.SkipPads]. Opaques at the position of an item are not in the stream.
func (r Rule) Strip(dst, stream [][]byte, items []xdr.Item, found []oncrpc.Argument, size int) ([][]byte, error) {
	p := split.Of(stream)
	at := size - split.Length(stream) // offset in the Send of the next byte
	pos := 0                          // its position in the unreduced stream
	for _, f := range found {
		for len(items) > 0 && items[0].Position < f.Position {
			pos += xdr.Round(items[0].Length)
			items = items[1:]
		}
		if !r.applies(f.Length) || len(items) > 0 && items[0].Position == f.Position {
			continue
		}
		n, missing := f.Position-pos, 0
		if n >= 0 {
			dst, missing = p.Take(dst, n)
		}
		if n < 0 || missing > 0 {
			return dst, fmt.Errorf("padded: no opaque of %d bytes is at position %d", f.Length, f.Position)
		}
		pad := r.pad(at + n)
		p.Skip(pad)
		at, pos = at+n+pad, f.Position
	}
	return p.Rest(dst), nil
}

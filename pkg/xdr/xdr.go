// Package xdr reads and writes External Data Representation (RFC 4506) on byte slices.
//
// An XDR stream here is the *unreduced* form of an RPC message: what it would be if nothing had been taken out of it.
// What a transport really holds is the reduced stream, as one or more slices, plus the bulk items that were taken out
// (RFC 8166 calls this reduction). [Decoder] reads such a message as if it were whole: all positions that it reports
// count in the unreduced stream, and [Decoder.Bulk] returns an item's bytes where they lie, inline or not.
//
// Everything that is decoded is bounded by the caller and checked against what is there before it is touched.
package xdr

// Item is a run of opaque bytes that is not in the stream but elsewhere in memory: the data of a READ or WRITE.
// Its count word stays in the stream; its data and its XDR round-up do not.
type Item struct {
	// Position is the offset in the unreduced stream at which the data belong, just behind their count word.
	// It is a multiple of four.
	Position int
	// Length is the number of data bytes, without round-up. When Data is not nil it is the sum of their lengths.
	Length int
	// Data are the bytes, in order. Nil while they are known of but not yet fetched.
	Data [][]byte
}

// Pad returns the number of zero bytes, 0 to 3, that round n up to a multiple of four (RFC 4506 section 4.10).
func Pad(n int) int { return -n & 3 }

// Round returns n rounded up to a multiple of four.
func Round(n int) int { return (n + 3) &^ 3 }

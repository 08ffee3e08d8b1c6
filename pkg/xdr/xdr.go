// Package xdr reads and writes External Data Representation (RFC 4506) on byte slices.
//
// Positions count in the *unreduced* form of an RPC message, before anything was taken out. A
// transport holds the reduced stream, as one or more slices, and the bulk items that were taken out
// (reduction in RFC 8166). [Decoder] reads such a message as a whole, and [Decoder.Bulk] returns an
// item's bytes in place, inline or not.
//
// The caller bounds everything that is decoded, and lengths are checked before data are touched.
package xdr

// Item is a run of opaque bytes outside the stream: the data of a READ or WRITE. Its count word
// stays in the stream; its data and XDR round-up do not.
type Item struct {
	// Position is the data's offset in the unreduced stream, behind their count word: a multiple of
	// four.
	Position int
	// Length is the number of data bytes, without round-up: the total length of Data, unless that
	// is nil.
	Length int
	// Data are the bytes, in order; nil before they are fetched.
	Data [][]byte
}

// Pad returns the number of zero bytes, 0 to 3, that round n up to a multiple of four (RFC 4506
// section 4.10).
func Pad(n int) int { return -n & 3 }

// Round returns n rounded up to a multiple of four.
func Round(n int) int { return (n + 3) &^ 3 }

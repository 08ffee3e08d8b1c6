// Package nfs4test makes NFS calls field by field, for tests, so that they can be malformed. It has
// sessions and decoded results for version 4.
package nfs4test

import (
	"encoding/binary"
	"fmt"
	"slices"

	"sluice.dev/sluice/pkg/xdr"
)

// Raw is encoded XDR.
type Raw []byte

// Fields encodes XDR: int and uint32 as words, uint64 as a hyper, strings and []byte as counted
// opaques, bool as 0 or 1, Raw unchanged.
func Fields(list ...any) Raw {
	var b Raw
	for _, f := range list {
		switch f := f.(type) {
		case int:
			b = binary.BigEndian.AppendUint32(b, uint32(f))
		case uint32:
			b = binary.BigEndian.AppendUint32(b, f)
		case uint64:
			b = binary.BigEndian.AppendUint64(b, f)
		case bool:
			v := uint32(0)
			if f {
				v = 1
			}
			b = binary.BigEndian.AppendUint32(b, v)
		case string:
			b = appendOpaque(b, []byte(f))
		case []byte:
			b = appendOpaque(b, f)
		case Raw:
			b = append(b, f...)
		default:
			panic(fmt.Sprintf("nfs4test: %T is no field", f))
		}
	}
	return b
}

func appendOpaque(b Raw, f []byte) Raw {
	b = binary.BigEndian.AppendUint32(b, uint32(len(f)))
	b = append(b, f...)
	return append(b, make([]byte, xdr.Pad(len(f)))...)
}

// Op is an operation or its result: its number, and fields.
func Op(code int, list ...any) Raw { return append(Fields(code), Fields(list...)...) }

// Bitmap is a bitmap4 of the given attributes.
func Bitmap(attrs ...uint32) Raw {
	if len(attrs) == 0 {
		return Fields(0)
	}
	words := make([]uint32, 1+slices.Max(attrs)/32)
	for _, n := range attrs {
		words[n/32] |= 1 << (n % 32)
	}
	b := Fields(len(words))
	for _, w := range words {
		b = append(b, Fields(w)...)
	}
	return b
}

// Attrs is a fattr4 with values in the order of the attributes' numbers.
func Attrs(attrs []uint32, values ...any) Raw {
	return append(Bitmap(attrs...), Fields([]byte(Fields(values...)))...)
}

func decoder(b []byte) *xdr.Decoder {
	var d xdr.Decoder
	d.ResetBytes(b)
	return &d
}

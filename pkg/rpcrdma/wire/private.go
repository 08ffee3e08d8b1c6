package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// PrivateData is exchanged while connecting, so that more than 1024 bytes may be inline from the
// first reply on (RFC 8797 section 4).
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                       Magic = f6ab0e18                        |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|  Version = 1  |      0      |R|   Send Size   | Receive Size  |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//
// A size of n KiB is sent as n-1.
type PrivateData struct {
	// RemoteInvalidation means that the sender can handle Send with Invalidate.
	RemoteInvalidation bool
	// SendSize and ReceiveSize are the largest messages that the sender sends and receives, in
	// bytes: multiples of 1024, up to 262144.
	SendSize, ReceiveSize int
}

const (
	privateSize    = 8
	privateVersion = 1
	flagR          = 1
)

var privateMagic = []byte{0xf6, 0xab, 0x0e, 0x18}

// DefaultPrivateData applies to a peer that sent none.
var DefaultPrivateData = PrivateData{SendSize: MinThreshold, ReceiveSize: MinThreshold}

// CheckThreshold returns an error unless n bytes can be an inline threshold.
func CheckThreshold(n int) error {
	if n < MinThreshold || n > MaxThreshold || n%1024 != 0 {
		return fmt.Errorf("inline threshold is %d bytes, must be a multiple of 1024 from %d to %d", n, MinThreshold, MaxThreshold)
	}
	return nil
}

// Append appends the eight bytes of p. Its sizes must be valid thresholds.
func (p PrivateData) Append(dst []byte) []byte {
	var flags byte
	if p.RemoteInvalidation {
		flags = flagR
	}
	dst = append(dst, privateMagic...)
	return append(dst, privateVersion, flags, byte(p.SendSize/1024-1), byte(p.ReceiveSize/1024-1))
}

// ParsePrivateData finds a PrivateData anywhere in data, since other data may precede it (RFC 8797
// section 5). The first one of a known version counts; without one it returns DefaultPrivateData
// and false.
func ParsePrivateData(data []byte) (PrivateData, bool) {
	for {
		at := bytes.Index(data, privateMagic)
		if at < 0 || len(data)-at < privateSize {
			return DefaultPrivateData, false
		}
		b := data[at : at+privateSize]
		if word := binary.BigEndian.Uint32(b[4:]); word>>24 == privateVersion {
			return PrivateData{
				RemoteInvalidation: word>>16&flagR != 0,
				SendSize:           (int(word>>8&0xff) + 1) * 1024,
				ReceiveSize:        (int(word&0xff) + 1) * 1024,
			}, true
		}
		data = data[at+1:]
	}
}

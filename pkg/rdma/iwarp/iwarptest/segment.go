package iwarptest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"time"
)

// Opcodes of RDMAP (RFC 5040 section 4.1).
const (
	opWrite       = 0
	opReadRequest = 1
	opSend        = 3
	opSendSEInv   = 6
)

const (
	mpaHeader = 20 // of a start-up frame, without its private data (RFC 5044 section 7.1.1)
	tagged    = 14 // header of a tagged segment
	untagged  = 18 // header of an untagged one
	crcLength = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// segment is an FPDU: its length, a segment of DDP, padding, and the CRC.
type segment struct {
	b []byte
	n int // bytes between the length and the padding
}

func (s *segment) op() byte     { return s.b[3] & 15 }
func (s *segment) last() bool   { return s.b[2]&0x40 != 0 }
func (s *segment) send() bool   { return s.op() >= opSend && s.op() <= opSendSEInv }
func (s *segment) first() bool  { return s.word(16) == 0 }
func (s *segment) data() []byte { return s.b[2+untagged : 2+s.n] }

// word is a word of the untagged header, by its place behind the control bytes.
func (s *segment) word(at int) uint32 { return binary.BigEndian.Uint32(s.b[at:]) }

// sequence is where an untagged header has the message's number.
const sequence = 12

// direction is one half of a connection.
type direction struct {
	c          *connection
	fromDialer bool
	from       net.Conn
	wire       chan<- bundle

	added   uint32 // Sends that were added, less those that were dropped
	action  Action // for the present message
	message [][]byte
}

func (d *direction) out(b []byte, cut bool) {
	select {
	case d.wire <- bundle{time.Now().Add(d.c.r.cfg.Delay), b, cut}:
	case <-d.c.done:
	}
}

// run reads until the stream ends.
func (d *direction) run() error {
	in := bufio.NewReaderSize(d.from, 1<<16)
	frame, err := read(in, nil, mpaHeader)
	if err != nil {
		return err
	}
	if frame, err = read(in, frame, int(binary.BigEndian.Uint16(frame[mpaHeader-2:]))); err != nil {
		return err
	}
	d.out(frame, false)
	for {
		b, err := read(in, nil, 2)
		if err != nil {
			return err
		}
		s := segment{n: int(binary.BigEndian.Uint16(b))}
		if s.b, err = read(in, b, s.n+(-(2+s.n)&3)+crcLength); err != nil {
			return err
		}
		header := untagged
		if s.b[2]&0x80 != 0 {
			header = tagged
		}
		if s.n < header {
			return fmt.Errorf("iwarptest: a segment of %d bytes", s.n)
		}
		d.c.count(d.fromDialer, &s)
		if !s.send() {
			d.out(s.b, false)
			continue
		}
		if !d.sent(&s) {
			<-d.c.done
			return net.ErrClosed
		}
	}
}

// read appends n bytes of the stream to b.
func read(in io.Reader, b []byte, n int) ([]byte, error) {
	b = append(b, make([]byte, n)...)
	_, err := io.ReadFull(in, b[len(b)-n:])
	return b, err
}

// sent passes a segment of a Send on, or not. It returns false if nothing passes any more.
func (d *direction) sent(s *segment) bool {
	if s.first() {
		d.action, d.message = Pass, d.message[:0]
		if look := d.c.r.cfg.Inspect; look != nil && len(s.data()) > 0 {
			d.action = look(&Message{Conn: d.c.id, FromDialer: d.fromDialer, Head: s.data()})
		}
	}
	switch d.action {
	case Hold:
		return false
	case Drop:
		if s.last() {
			d.added--
		}
		return true
	case Repeat:
		d.message = append(d.message, bytes.Clone(s.b))
	}
	d.number(s.b)
	d.out(s.b, d.action == Cut && s.last())
	if d.action == Repeat && s.last() {
		d.added++
		for _, b := range d.message {
			d.number(b)
			d.out(b, false)
		}
	}
	return true
}

// number corrects sequence numbers for messages that were added and dropped, and writes changed
// bytes.
func (d *direction) number(b []byte) {
	binary.BigEndian.PutUint32(b[sequence:], binary.BigEndian.Uint32(b[sequence:])+d.added)
	end := len(b) - crcLength
	binary.LittleEndian.PutUint32(b[end:], crc32.Checksum(b[:end], castagnoli))
}

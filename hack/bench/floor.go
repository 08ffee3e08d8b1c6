package main

// The floors: the cost of the same bytes without a protocol, between two processes like every
// measurement here.
//
//	raw    a request and a reply of the operation's sizes. Nothing is done with the bytes.
//	floor  the same with the unavoidable work of a server: the data are read from or written to
//	       the file, and with CRC both ends compute CRC32C over the bytes sent and received.
//
// A request is 128 bytes, a header of 16 among them; a WRITE's data follow it. A reply is 128
// bytes, after the data for a READ.

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"os"
	"slices"
	"time"
)

const (
	floorHeader = 128
	floorNull   = 0
	floorRead   = 1
	floorWrite  = 2
	floorPiece  = 64 << 10 // bytes under one CRC, as in an FPDU of the gateway
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// floorRequest is the header of a request.
type floorRequest struct {
	op    byte
	file  bool // read or write the file
	crc   bool
	sync  bool
	size  uint32
	block uint32 // offset in the file in units of size
}

func (r floorRequest) put(b []byte) {
	b[0] = r.op
	b[1] = bit(r.file, 1) | bit(r.crc, 2) | bit(r.sync, 4)
	binary.BigEndian.PutUint32(b[4:], r.size)
	binary.BigEndian.PutUint32(b[8:], r.block)
}

func floorParse(b []byte) floorRequest {
	return floorRequest{op: b[0], file: b[1]&1 != 0, crc: b[1]&2 != 0, sync: b[1]&4 != 0,
		size: binary.BigEndian.Uint32(b[4:]), block: binary.BigEndian.Uint32(b[8:])}
}

func bit(on bool, v byte) byte {
	if on {
		return v
	}
	return 0
}

// floorServe serves one file on a loopback listener until its standard input ends.
func floorServe(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return serveLoopback(func(c net.Conn) error {
		go floorConn(c, f)
		return nil
	})
}

// serveLoopback prints its address and accepts connections until standard input ends or handle
// fails.
func serveLoopback(handle func(net.Conn) error) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	for {
		c, err := l.Accept()
		if err == nil {
			err = handle(c)
		}
		if err != nil {
			return err
		}
	}
}

// floorConn answers all requests that one read returned before it writes, as the gateway does.
func floorConn(c net.Conn, f *os.File) {
	defer c.Close()
	in := bufio.NewReaderSize(c, 256<<10)
	out := make([]byte, 0, 64<<10)
	data := make([]byte, 4<<20)
	for {
		if in.Buffered() < floorHeader && len(out) > 0 {
			if _, err := c.Write(out); err != nil {
				return
			}
			out = out[:0]
		}
		var h [floorHeader]byte
		if _, err := io.ReadFull(in, h[:]); err != nil {
			return
		}
		r := floorParse(h[:])
		if int(r.size) > len(data) {
			return
		}
		buf := data[:r.size]
		at := int64(r.block) * int64(r.size)
		switch r.op {
		case floorWrite:
			for done := 0; done < len(buf); done += floorPiece {
				p := buf[done:min(done+floorPiece, len(buf))]
				if _, err := io.ReadFull(in, p); err != nil {
					return
				}
				if r.crc {
					crc32.Checksum(p, castagnoli)
				}
				if r.file {
					if _, err := f.WriteAt(p, at+int64(done)); err != nil {
						return
					}
				}
			}
			if r.sync && r.file {
				_ = f.Sync()
			}
			out = append(out, h[:]...)
		case floorRead:
			parts := net.Buffers{out, buf}
			if r.file {
				for done := 0; done < len(buf); done += 2 * floorPiece {
					p := buf[done:min(done+2*floorPiece, len(buf))]
					if _, err := f.ReadAt(p, at+int64(done)); err != nil && err != io.EOF {
						return
					}
					if r.crc {
						crc32.Checksum(p, castagnoli)
					}
				}
			}
			parts = append(parts, h[:])
			if len(out) == 0 {
				parts = parts[1:]
			}
			if _, err := parts.WriteTo(c); err != nil {
				return
			}
			out = out[:0]
		default:
			out = append(out, h[:]...)
		}
	}
}

// floorMeasure is the client's process. It prints its result as JSON.
func floorMeasure(o options) error {
	h, err := hex.DecodeString(o.floor)
	if err != nil || len(h) != floorHeader {
		return fmt.Errorf("-floor is no header of %d bytes", floorHeader)
	}
	r, err := floorRun(o.file, floorParse(h), o.depth, uint32(o.blocks), o.duration)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// floorRun keeps depth requests in flight for the duration. It returns operations per second and
// the median latency.
func floorRun(addr string, r floorRequest, depth int, blocks uint32, d time.Duration) (*measured, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	in := bufio.NewReaderSize(c, 256<<10)
	var h [floorHeader]byte
	payload := make([]byte, r.size)
	for i := range payload {
		payload[i] = byte(i)
	}
	started := make([]time.Time, depth)
	var next, done int
	out := make([]byte, 0, depth*floorHeader)
	send := func() error {
		started[next%depth] = time.Now()
		if r.size > 0 {
			r.block = uint32(next) % blocks
		}
		next++
		r.put(h[:])
		if r.op != floorWrite {
			out = append(out, h[:]...)
			return nil
		}
		if r.crc {
			crc32.Checksum(payload, castagnoli)
		}
		b := net.Buffers{h[:], payload}
		_, err := b.WriteTo(c)
		return err
	}
	flush := func() error {
		if len(out) == 0 {
			return nil
		}
		_, err := c.Write(out)
		out = out[:0]
		return err
	}
	var lat []time.Duration
	begin := time.Now()
	for range depth {
		if err := send(); err != nil {
			return nil, err
		}
	}
	data := make([]byte, r.size)
	for done < next {
		if in.Buffered() < floorHeader {
			if err := flush(); err != nil {
				return nil, err
			}
		}
		if r.op == floorRead {
			for at := 0; at < len(data); at += floorPiece {
				p := data[at:min(at+floorPiece, len(data))]
				if _, err := io.ReadFull(in, p); err != nil {
					return nil, err
				}
				if r.crc {
					crc32.Checksum(p, castagnoli)
				}
			}
		}
		if _, err := io.ReadFull(in, h[:]); err != nil {
			return nil, err
		}
		now := time.Now()
		lat = append(lat, now.Sub(started[done%depth]))
		done++
		if now.Sub(begin) < d {
			if err := send(); err != nil {
				return nil, err
			}
		}
	}
	m := &measured{Ops: float64(done), Rate: float64(done) / time.Since(begin).Seconds()}
	slices.Sort(lat)
	m.P50 = float64(lat[len(lat)/2].Nanoseconds()) / 1e3 // never empty: every request is answered
	return m, nil
}

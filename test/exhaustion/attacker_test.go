//go:build kernel

package exhaustion

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// mib is the length of an attacker's calls.
const mib = 1 << 20

// comesBack is the pause before an attacker replaces a lost connection.
const comesBack = 100 * time.Millisecond

// attack describes an attacker's connections and their number.
type attack struct {
	connections int
	// networks are "rdma" and "tcp": the connections take turns.
	networks []string
	// from returns the address that connection i comes from.
	from func(i int) netip.Addr
	// open makes the connection costly once it is established.
	open func(c *attacker) error
}

// attacker is one connection.
type attacker struct {
	net.Conn
	network string
	handle  []byte // of a file of at least 1 MiB, in the export
	xid     uint32
	msn     uint32
}

// siege is an attack under way.
type siege struct {
	t     testing.TB
	tries atomic.Int64 // connections begun
	// lasts returns when the peer has ended the connection, or ctx ends. It reads nothing.
	up      atomic.Int64
	refused atomic.Int64 // connections that failed to be made
	ended   atomic.Int64 // connections that stood and were ended
	stop    context.CancelFunc
	gone    sync.WaitGroup
}

// begin starts an attack, and returns when each connection was tried once.
func (a *attack) begin(t testing.TB, g *gateway) *siege {
	ctx, cancel := context.WithCancel(context.Background())
	s := &siege{t: t, stop: cancel}
	var first sync.WaitGroup
	gate := make(chan struct{}, 64) // connections being made at once
	for i := range a.connections {
		s.gone.Add(1)
		first.Add(1)
		network := a.networks[i%len(a.networks)]
		address := g.rdma
		if network == "tcp" {
			address = g.tcp
		}
		go func() {
			defer s.gone.Done()
			tried := sync.OnceFunc(first.Done)
			defer tried()
			for ctx.Err() == nil {
				gate <- struct{}{}
				c, err := dial(ctx, a.from(i), network, address)
				if err == nil {
					c.handle = g.handle
					if err = a.open(c); err != nil {
						_ = c.Close()
					}
				}
				<-gate
				s.tries.Add(1)
				tried()
				if err != nil {
					s.refused.Add(1)
				} else {
					s.up.Add(1)
					c.lasts(ctx)
					s.up.Add(-1)
					s.ended.Add(1)
					_ = c.Close()
				}
				select {
				case <-time.After(comesBack):
				case <-ctx.Done():
				}
			}
		}()
	}
	first.Wait()
	return s
}

// end stops the attack.
func (s *siege) end() {
	s.stop()
	s.gone.Wait()
}

func (s *siege) String() string {
	var b strings.Builder
	for _, c := range []struct {
		what string
		n    *atomic.Int64
	}{{"begun", &s.tries}, {"up", &s.up}, {"not made", &s.refused}, {"ended", &s.ended}} {
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		b.WriteString(c.what + " ")
		b.WriteString(strconv.FormatInt(c.n.Load(), 10))
	}
	return b.String()
}

// lasts returns when the peer has ended the connection, or ctx ends. It reads nothing.
func (c *attacker) lasts(ctx context.Context) {
	raw, err := c.Conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return
	}
	for ended := false; !ended && ctx.Err() == nil; {
		select {
		case <-time.After(250 * time.Millisecond):
		case <-ctx.Done():
		}
		err := raw.Control(func(fd uintptr) {
			p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
			n, _ := unix.Poll(p, 0)
			ended = n > 0
		})
		ended = ended || err != nil
	}
}

// dial connects from an address, and goes through the start-up of MPA on network "rdma".
func dial(ctx context.Context, from netip.Addr, network, address string) (*attacker, error) {
	d := net.Dialer{Timeout: 5 * time.Second, LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	c := &attacker{Conn: conn, network: network}
	if network == "rdma" {
		if err := c.startUp(); err != nil {
			_ = conn.Close()
			return nil, err
		}
	}
	return c, nil
}

// startUp asks for a connection by MPA revision 1 with CRC (RFC 5044 section 7.1.1), without
// private data.
func (c *attacker) startUp() error {
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Write([]byte("MPA ID Req Frame\x40\x01\x00\x00")); err != nil {
		return err
	}
	var reply [20]byte
	if _, err := io.ReadFull(c, reply[:]); err != nil {
		return err
	}
	if reply[16]&0x20 != 0 {
		return net.ErrClosed // rejected
	}
	if _, err := io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint16(reply[18:]))); err != nil {
		return err
	}
	return c.SetDeadline(time.Time{})
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// send sends a message: a Send in one FPDU (RFC 5044 section 4, RFC 5040 section 4.3) or a record
// (RFC 5531 section 11).
func (c *attacker) send(message []byte) error {
	_ = c.SetWriteDeadline(time.Now().Add(5 * time.Second))
	if c.network == "tcp" {
		_, err := c.Write(append(binary.BigEndian.AppendUint32(nil, 1<<31|uint32(len(message))), message...))
		return err
	}
	c.msn++
	b := binary.BigEndian.AppendUint16(nil, uint16(18+len(message)))
	b = append(b, 0x41, 0x43)               // untagged, last, version 1; Send, version 1
	b = binary.BigEndian.AppendUint32(b, 0) // reserved
	b = binary.BigEndian.AppendUint32(b, 0) // queue
	// call returns the head of an RPC call with AUTH_SYS of user 0, and the file handle.
	b = binary.BigEndian.AppendUint32(b, c.msn)
	b = binary.BigEndian.AppendUint32(b, 0) // message offset
	b = append(b, message...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	_, err := c.Write(b)
	return err
}

// words appends 32-bit words.
func words(b []byte, ws ...uint32) []byte {
	for _, w := range ws {
		b = binary.BigEndian.AppendUint32(b, w)
	}
	return b
}

// NFS version 3.
const (
	procRead  = 6
	procWrite = 7
)

// call is the head of an RPC call with AUTH_SYS of user 0, and the file handle.
func (c *attacker) call(procedure uint32) []byte {
	c.xid++
	b := words(nil, c.xid, 0, 2, 100003, 3, procedure)
	// AUTH_SYS: stamp, no name, uid, gid, no groups; AUTH_NONE
	b = words(b, 1, 20, 0, 0, 0, 0, 0, 0, 0)
	b = words(b, uint32(len(c.handle)))
	return append(b, slices.Concat(c.handle, make([]byte, -len(c.handle)&3))...)
}

// halfRecord announces a WRITE of 1 MiB and sends 2 KB of it.
func halfRecord(c *attacker) error {
	args := words(c.call(procWrite), 0, 0, mib, 0, mib)
	b := words(nil, 1<<31|uint32(len(args)+mib))
	_, err := c.Write(append(append(b, args...), make([]byte, 2048-len(args))...))
	return err
}

// unansweredReads sends two WRITEs of 1 MiB in a Read chunk, and leaves the RDMA Reads unanswered.
func unansweredReads(c *attacker) error {
	for range 2 {
		args := words(c.call(procWrite), 0, 0, mib, 0, mib)
		header := words(nil, c.xid, 1, 32, 0) // version 1, 32 credits, RDMA_MSG
		header = words(header, 1, uint32(len(args)), 0x1234, mib, 0, 0, 0)
		header = words(header, 0, 0) // no Write list, no Reply chunk
		if err := c.send(append(header, args...)); err != nil {
			return err
		}
	}
	return nil
}

// unreadReplies asks for 64 MiB, and reads nothing.
func unreadReplies(c *attacker) error {
	for range 64 {
		args := words(c.call(procRead), 0, 0, mib)
		if c.network == "rdma" {
			header := words(nil, c.xid, 1, 32, 0, 0)
			header = words(header, 1, 1, 0x1234, mib, 0, 0, 0) // a Write chunk of one segment
			header = words(header, 0)
			args = append(header, args...)
		}
		if err := c.send(args); err != nil {
			return err
		}
		if c.network == "rdma" && c.xid == 32 {
			break // no more credits
		}
	}
	return nil
}

// idle does nothing.
func idle(*attacker) error { return nil }

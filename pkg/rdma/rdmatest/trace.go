package rdmatest

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"sluice.dev/sluice/pkg/rdma"
)

// Counters count operations on the wire. Those of an endpoint count its own.
type Counters struct {
	Connections      uint64
	Messages         uint64 // Sends that arrived, SendWithInvalidate included
	Invalidates      uint64 // those with invalidate
	Writes, Reads    uint64 // RDMA Writes and Read requests that arrived
	MessageBytes     uint64
	WriteBytes       uint64
	ReadBytes        uint64
	Exposed          uint64 // regions made by Expose
	LocalInvalidates uint64
}

// Sub returns the difference to an earlier state.
func (c Counters) Sub(b Counters) Counters {
	return Counters{
		c.Connections - b.Connections, c.Messages - b.Messages, c.Invalidates - b.Invalidates, c.Writes - b.Writes, c.Reads - b.Reads,
		c.MessageBytes - b.MessageBytes, c.WriteBytes - b.WriteBytes, c.ReadBytes - b.ReadBytes,
		c.Exposed - b.Exposed, c.LocalInvalidates - b.LocalInvalidates,
	}
}

type counters struct {
	connections, messages, invalidates, writes, reads              atomic.Uint64
	messageBytes, writeBytes, readBytes, exposed, localInvalidates atomic.Uint64
}

// Counters returns the sum over all connections, ended ones included.
func (f *Fabric) Counters() Counters {
	c := &f.counters
	return Counters{
		c.connections.Load(), c.messages.Load(), c.invalidates.Load(), c.writes.Load(), c.reads.Load(),
		c.messageBytes.Load(), c.writeBytes.Load(), c.readBytes.Load(), c.exposed.Load(), c.localInvalidates.Load(),
	}
}

// CountersOf returns the counters of one endpoint of a fabric.
func CountersOf(ep rdma.Endpoint) Counters {
	e := ep.(*endpoint)
	e.c.mu.Lock()
	defer e.c.mu.Unlock()
	return e.counts
}

// count counts an arrived request.
func (f *Fabric) count(from *endpoint, p *packet) {
	c, g := &from.counts, &f.counters
	n := p.bytes
	var handle uint32
	switch p.wr.Op {
	case rdma.Write:
		handle = p.wr.Remote.Handle
		c.Writes++
		c.WriteBytes += uint64(n)
		g.writes.Add(1)
		g.writeBytes.Add(uint64(n))
	case rdma.Read:
		handle = p.wr.Remote.Handle
		n = length(p.wr.Local)
		c.Reads++
		c.ReadBytes += uint64(n)
		g.reads.Add(1)
		g.readBytes.Add(uint64(n))
	default:
		c.Messages++
		c.MessageBytes += uint64(n)
		g.messages.Add(1)
		g.messageBytes.Add(uint64(n))
		if p.wr.Op == rdma.SendWithInvalidate {
			handle = p.wr.Invalidate
			c.Invalidates++
			g.invalidates.Add(1)
		}
	}
	if f.o.Record {
		f.record(Event{Conn: from.c.number, From: from.side, What: opName(p.wr.Op), Bytes: n, Handle: handle})
	}
}

// Event is an event of the fabric. Requests are recorded when they arrive.
type Event struct {
	At   time.Duration // since the fabric was made
	Conn int           // the connection's number
	From Side          // side that caused it
	// "Send", "Send with Invalidate", "RDMA Write", "RDMA Read", "exposed", "invalidated",
	// "connected", "ended: …"
	What   string
	Bytes  int
	Handle uint32 // 0 where none is involved
}

// String is a line of a transcript.
func (e Event) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%10v  #%d %-8s %s", e.At, e.Conn, e.From, e.What)
	switch e.What {
	case "Send", "Send with Invalidate", "RDMA Write", "RDMA Read", "exposed":
		fmt.Fprintf(&b, ", %d bytes", e.Bytes)
	}
	if e.Handle != 0 {
		fmt.Fprintf(&b, ", handle %08x", e.Handle)
	}
	return b.String()
}

func (f *Fabric) record(e Event) {
	if !f.o.Record {
		return
	}
	e.At = time.Since(f.start)
	f.mu.Lock()
	f.events = append(f.events, e)
	f.mu.Unlock()
}

// Events returns the events so far, if Options.Record is set.
func (f *Fabric) Events() []Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.events)
}

// WriteTranscript writes the events, one on a line.
func (f *Fabric) WriteTranscript(w io.Writer) error {
	for _, e := range f.Events() {
		if _, err := fmt.Fprintln(w, e); err != nil {
			return err
		}
	}
	return nil
}

func opName(op rdma.Opcode) string {
	switch op {
	case rdma.Send:
		return "Send"
	case rdma.SendWithInvalidate:
		return "Send with Invalidate"
	case rdma.Write:
		return "RDMA Write"
	case rdma.Read:
		return "RDMA Read"
	case rdma.LocalInvalidate:
		return "Local Invalidate"
	case rdma.Redirect:
		return "Redirect"
	default:
		return fmt.Sprintf("opcode %d", op)
	}
}

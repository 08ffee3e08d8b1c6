package oncrpc

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
)

// Config configures a TCP connection, at either end.
type Config struct {
	// Pool provides the memory of all messages.
	Pool *bufpool.Pool
	// Handler answers the peer's calls. A client without one answers PROG_UNAVAIL.
	Handler Handler
	// Bindings, if set, turn the eligible results of replies into items, as RPC-over-RDMA does, and
	// bound the length of replies for Budget.
	Bindings Bindings
	// Observer may be nil.
	Observer Observer
	// Budget, if set, bounds the memory of large calls, and of large replies if there are Bindings,
	// on all connections together and on each. Its total must be at least twice MaxRecord. A
	// connection with a call beyond it is closed.
	Budget *bufpool.Budget

	// Batch, if set, is corked while a connection works through one read; see [Conn].
	Batch Corker

	// MaxRecord bounds the length in bytes of a received message. 0 means 2 MiB.
	MaxRecord int
	// MaxCalls bounds the calls in flight on a connection: at the bound, reading pauses. 0 means
	// 256.
	MaxCalls int
	// MaxConns bounds a server's connections: above it, new ones are closed at once. 0 means 4096.
	MaxConns int
	// ReadBuffer is the size in bytes of the buffer for small messages. 0 means 64 KiB.
	ReadBuffer int
	// Thread lets the connection block a thread while it waits, which saves several microseconds
	// for a lone message. It applies only while the process has fewer such connections, those of
	// pkg/rdma/iwarp included, than GOMAXPROCS less one. Otherwise, and by default, the connection
	// uses Go's poller.
	Thread bool
	// Spin is the longest time that such a connection polls for bytes before it blocks. It polls
	// less where that lately failed. 0 means not at all.
	Spin time.Duration
	// WriteTimeout closes a connection whose peer takes nothing for that long. 0 means one minute.
	WriteTimeout time.Duration
}

func (c *Config) defaults() error {
	if c.Pool == nil {
		return errors.New("oncrpc: Config.Pool is nil, must be a pool")
	}
	for _, f := range []struct {
		name                     string
		v                        *int
		initial, lowest, highest int
	}{
		{"MaxRecord", &c.MaxRecord, 2 << 20, 1024, lastFragment - 1},
		{"MaxCalls", &c.MaxCalls, 256, 1, 1 << 20},
		{"MaxConns", &c.MaxConns, 4096, 1, 1 << 20},
		{"ReadBuffer", &c.ReadBuffer, 64 << 10, 2 * smallRecord, bufpool.MaxSize},
	} {
		if *f.v == 0 {
			*f.v = f.initial
		}
		if *f.v < f.lowest || *f.v > f.highest {
			return fmt.Errorf("oncrpc: Config.%s is %d, must be %d to %d", f.name, *f.v, f.lowest, f.highest)
		}
	}
	if c.WriteTimeout < 0 {
		return fmt.Errorf("oncrpc: Config.WriteTimeout is %v, must not be negative", c.WriteTimeout)
	}
	if c.WriteTimeout == 0 {
		c.WriteTimeout = time.Minute
	}
	return nil
}

// Stats are counters of a server's or client's TCP connections.
type Stats struct {
	ReadCalls, WriteCalls uint64 // system calls that transferred bytes
	BytesIn, BytesOut     uint64 // with record marks
	RecordsIn, RecordsOut uint64
	Orphans               uint64 // replies without a request
}

// Add adds the counters of o.
func (s *Stats) Add(o Stats) {
	s.ReadCalls += o.ReadCalls
	s.WriteCalls += o.WriteCalls
	s.BytesIn += o.BytesIn
	s.BytesOut += o.BytesOut
	s.RecordsIn += o.RecordsIn
	s.RecordsOut += o.RecordsOut
	s.Orphans += o.Orphans
}

type counters struct {
	readCalls, writeCalls, bytesIn, bytesOut, recordsIn, recordsOut, orphans atomic.Uint64
}

func (c *counters) snapshot() Stats {
	return Stats{
		ReadCalls: c.readCalls.Load(), WriteCalls: c.writeCalls.Load(), BytesIn: c.bytesIn.Load(), BytesOut: c.bytesOut.Load(),
		RecordsIn: c.recordsIn.Load(), RecordsOut: c.recordsOut.Load(), Orphans: c.orphans.Load(),
	}
}

package rpcstats

import (
	"sync/atomic"
	"time"

	status "sluice.dev/sluice/api/status/v1alpha1"
	"sluice.dev/sluice/pkg/oncrpc"
)

// Calls counts the calls of one connection. The zero value is ready.
type Calls struct {
	rpcs, errors, in, out atomic.Uint64
	duration              atomic.Int64 // nanoseconds
}

// Received counts the bytes of a call.
func (s *Calls) Received(c *oncrpc.Call) { s.in.Add(uint64(MessageSize(&c.Message))) }

// Answered counts a call that is about to be answered after d, with success or without.
func (s *Calls) Answered(c *oncrpc.Call, d time.Duration, ok bool) {
	s.rpcs.Add(1)
	if !ok {
		s.errors.Add(1)
	}
	s.out.Add(uint64(MessageSize(&c.Reply)))
	s.duration.Add(int64(d))
}

// Dropped counts a call that is not answered.
func (s *Calls) Dropped() {
	s.rpcs.Add(1)
	s.errors.Add(1)
}

// Status returns the counters.
func (s *Calls) Status() status.Calls {
	return status.Calls{
		RPCs: s.rpcs.Load(), Errors: s.errors.Load(), BytesIn: s.in.Load(), BytesOut: s.out.Load(),
		Seconds: time.Duration(s.duration.Load()).Seconds(),
	}
}

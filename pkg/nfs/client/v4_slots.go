package client

import (
	"encoding/binary"
	"time"

	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/oncrpc"
)

// slot is a slot of the session, and its call in flight.
type slot struct {
	sequence uint32 // the latest
	r        *oncrpc.Request
	done     func(*oncrpc.Request) // the user's
	probing  bool                  // a call was given up; see probe
}

func (s *slot) busy() bool { return s.r != nil || s.probing }

func (s *session) freeSlotLocked() int {
	for i := range s.slots[:s.target] {
		if !s.slots[i].busy() {
			return i
		}
	}
	return -1
}

// stampLocked writes SEQUENCE for the next turn of slot n into a call.
func (s *session) stampLocked(r *oncrpc.Request, n int) {
	s.slots[n].sequence++
	b := r.Call.Stream[0][r.ArgsAt+sequenceAt:]
	copy(b, s.id[:])
	binary.BigEndian.PutUint32(b[16:], s.slots[n].sequence)
	binary.BigEndian.PutUint32(b[20:], uint32(n))
	binary.BigEndian.PutUint32(b[24:], uint32(s.highestLocked(n)))
}

// highestLocked returns the highest slot in use, with n.
func (s *session) highestLocked(n int) int {
	for i := len(s.slots) - 1; i > n; i-- {
		if s.slots[i].busy() {
			return i
		}
	}
	return n
}

// slotOf returns the slot in a call.
func slotOf(r *oncrpc.Request) uint32 {
	return binary.BigEndian.Uint32(r.Call.Stream[0][r.ArgsAt+sequenceAt+20:])
}

// probeLocked finds out whether the server is done with a call that was given up. It sends SEQUENCE
// alone, in the same turn: whatever the server answers, but NFS4ERR_DELAY, the turn is over.
func (s *session) probeLocked(n uint32) {
	if s.phase != ready {
		return
	}
	sl := &s.slots[n]
	sl.probing = true
	s.inFlight++
	sl.sequence--
	r, err := s.newRequest(nfs4.ProcCompound, compound{sequence(false)}, fixedOps)
	if err != nil {
		s.endProbeLocked(n)
		s.loseLocked()
		return
	}
	s.stampLocked(r, int(n))
	r.Done = s.probed
	go oncrpc.Submit(s.rq, r) // the connection may hold its lock
}

func (s *session) endProbeLocked(n uint32) {
	s.slots[n].probing = false
	s.inFlight--
}

func (s *session) probed(r *oncrpc.Request) {
	var res nfs4.SequenceRes
	status, err := sequenceStatus(r, &res)
	n := slotOf(r)
	s.mu.Lock()
	s.endProbeLocked(n)
	switch {
	case err != nil || isLostSession(status) && status != nfs4.ErrSeqFalseRetry:
		s.loseLocked()
	case status == nfs4.ErrDelay:
		s.slots[n].probing = true
		s.inFlight++
		time.AfterFunc(delayed, func() {
			s.mu.Lock()
			s.endProbeLocked(n)
			s.probeLocked(n)
			s.mu.Unlock()
		})
	}
	s.mu.Unlock()
	r.Free()
	s.pump()
}

package state

import "sluice.dev/sluice/pkg/nfs/nfs4"

// Offload is a copy that goes on after the reply to its COPY (RFC 7862 section 4.8). Its stateid
// lasts until EndOffload, or until the client ends.
type Offload struct {
	stateid
	// Job is the caller's.
	Job   any
	ended bool
}

// BeginOffload makes the stateid of a copy to a file; false if there are too many, or the client
// cannot be called back. When the client ends, job is among the resources of Released.
func (s *State) BeginOffload(c *Client, f FileID, job any) (*Offload, nfs4.StateID, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.ended || !c.reachable() || s.offloads >= s.cfg.MaxOffloads {
		return nil, nfs4.StateID{}, false
	}
	o := &Offload{stateid: s.newStateID(c, &file{id: f}), Job: job}
	o.offload = o
	s.stateids[o.number] = &o.stateid
	c.offloads[o.number] = o
	s.offloads++
	return o, s.next(&o.stateid), true
}

// Offload returns the copy of a stateid, for OFFLOAD_STATUS and OFFLOAD_CANCEL on its target.
func (s *State) Offload(c *Client, id *nfs4.StateID, f *FileID) (*Offload, nfs4.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, st := s.find(c, id)
	switch {
	case st != nfs4.OK:
		return nil, st
	case t.offload == nil || t.file.id != *f:
		return nil, nfs4.ErrBadStateID
	}
	return t.offload, nfs4.OK
}

// EndOffload ends the stateid of a copy.
func (s *State) EndOffload(o *Offload) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endOffload(o)
}

func (s *State) endOffload(o *Offload) {
	if o.ended {
		return
	}
	o.ended = true
	s.offloads--
	delete(o.client.offloads, o.number)
	s.dropStateID(&o.stateid)
}

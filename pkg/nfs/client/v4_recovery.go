package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/nfs4"
)

const (
	// maxMessage bounds a COMPOUND and its reply: the data of a READ or WRITE, and the rest.
	maxMessage = nfs3.MaxData + messageRest
	// messageRest bounds the RPC header and the other operations, in bytes.
	messageRest = 8 << 10
	// maxCached bounds the replies that the server keeps.
	maxCached = 4 << 10
	maxOps    = 16
	// callbackProgram is a program that nobody calls.
	callbackProgram = 0x40000000
)

// recover makes a session, and sends the waiting calls.
func (s *session) recover() {
	err := s.makeSession(s.ctx)
	for range maxLosses {
		if failed := (*compoundError)(nil); !errors.As(err, &failed) || !isLostSession(failed.status) {
			break
		}
		err = s.makeSession(s.ctx)
	}
	s.mu.Lock()
	switch {
	case s.phase == closed:
		err = errClosed
	case err != nil:
		s.phase = lost
	default:
		s.phase = ready
		s.renewLocked()
	}
	s.mu.Unlock()
	if err != nil {
		s.fail(err)
	}
	s.pump()
}

// makeSession makes a session of the client ID, or of a new one if the server does not know it any
// more. It runs alone: no call is in flight.
func (s *session) makeSession(ctx context.Context) error {
	if s.clientID != 0 {
		_ = s.destroySession(ctx) // it may be there after all
		err := s.createSession(ctx)
		if err == nil || !errors.Is(err, nfs4.ErrStaleClientID) {
			return err
		}
	}
	if err := s.exchangeID(ctx); err != nil {
		return err
	}
	if err := s.createSession(ctx); err != nil {
		return err
	}
	if err := s.reclaim(ctx); err != nil {
		return err
	}
	return s.askLease(ctx)
}

// repeat makes a COMPOUND on the connection, again while the server asks for it.
func (s *session) repeat(ctx context.Context, ops func() compound, read func(*results) error) error {
	for p := (patience{onDelay: s.onDelay}); ; {
		err := s.exchange(ctx, s.rq, ops(), 0, read)
		if err == nil || !p.again(ctx, err) {
			return err
		}
	}
}

func (s *session) exchangeID(ctx context.Context) error {
	return s.repeat(ctx, func() compound { return compound{{nfs4.OpExchangeID, &s.owner}} }, func(r *results) error {
		var res nfs4.ExchangeIDRes
		if err := r.get(nfs4.OpExchangeID, &res); err != nil {
			return err
		}
		s.mu.Lock()
		s.clientID, s.create = res.ClientID, res.Sequence
		s.mu.Unlock()
		return nil
	})
}

func (s *session) createSession(ctx context.Context) error {
	fore := nfs4.ChannelAttrs{
		MaxRequestSize: maxMessage, MaxResponseSize: maxMessage, MaxResponseSizeCached: maxCached,
		MaxOperations: maxOps, MaxRequests: maxSlots,
	}
	// A back channel is described, but not asked for.
	back := nfs4.ChannelAttrs{MaxRequestSize: 4096, MaxResponseSize: 4096, MaxOperations: 2, MaxRequests: 1}
	args := nfs4.CreateSessionArgs{
		ClientID: s.clientID, Sequence: s.create, Fore: fore, Back: back, CBProgram: callbackProgram,
		SecParms: []nfs4.SecParms{{Flavor: nfs4.AuthNone}},
	}
	return s.repeat(ctx, func() compound { return compound{{nfs4.OpCreateSession, &args}} }, func(r *results) error {
		var res nfs4.CreateSessionRes
		if err := r.get(nfs4.OpCreateSession, &res); err != nil {
			return err
		}
		if n := res.Fore.MaxRequests; n < 1 || n > maxSlots {
			return fmt.Errorf("CREATE_SESSION: the server grants %d slots, %d were asked for", n, maxSlots)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.create++
		s.id, s.fore = res.Session, res.Fore
		s.slots = make([]slot, res.Fore.MaxRequests)
		s.target = len(s.slots)
		return nil
	})
}

// direct makes a COMPOUND in slot 0 while other calls wait. ops follow SEQUENCE.
func (s *session) direct(ctx context.Context, read func(*results) error, ops ...operation) error {
	return s.repeat(ctx, func() compound {
		s.slots[0].sequence++
		return append(compound{{nfs4.OpSequence, &nfs4.SequenceArgs{
			Session: s.id, Sequence: s.slots[0].sequence, CacheThis: true,
		}}}, ops...)
	}, func(r *results) error {
		if err := r.skip(nfs4.OpSequence); err != nil {
			s.slots[0].sequence--
			return err
		}
		return read(r)
	})
}

// reclaim opens the files again by their handles, while the server is in its grace period, and ends
// the recovery. A file that it does not grant is opened anew when it is used.
func (s *session) reclaim(ctx context.Context) error {
	s.mu.Lock()
	files := make([]*v4File, 0, len(s.files))
	for f := range s.files {
		files = append(files, f)
	}
	s.mu.Unlock()
	for _, f := range files {
		err := s.direct(ctx, f.reclaimed, putFH(f.handle), f.open(nfs4.ClaimPrevious))
		if err != nil && !errors.As(err, new(*compoundError)) {
			return err
		}
	}
	err := s.direct(ctx, func(r *results) error { return r.next(nfs4.OpReclaimComplete) },
		operation{nfs4.OpReclaimComplete, &nfs4.ReclaimCompleteArgs{}})
	if errors.Is(err, nfs4.ErrCompleteAlready) {
		return nil
	}
	return err
}

// askLease asks for the lease time.
func (s *session) askLease(ctx context.Context) error {
	return s.direct(ctx, func(r *results) error {
		var a v4Attrs
		if err := r.skip(nfs4.OpPutRootFH); err != nil {
			return err
		}
		if err := r.get(nfs4.OpGetAttr, &a); err != nil {
			return err
		}
		s.mu.Lock()
		s.lease = time.Duration(a.lease) * time.Second
		s.mu.Unlock()
		return nil
	}, operation{nfs4.OpPutRootFH, nil}, getAttr(nfs4.BitmapOf(nfs4.AttrLeaseTime)))
}

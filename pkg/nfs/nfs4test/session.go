package nfs4test

import (
	"context"
	"fmt"
	"slices"

	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/oncrpc"
)

// Session is a session of version 4.1 or later.
type Session struct {
	*Caller
	Minor    uint32
	ClientID uint64
	ID       Raw
	// Slots has the latest sequence id of each slot.
	Slots []uint32
}

// ChannelLen is the longest call and reply of a Session.
const ChannelLen = 128 << 10

// ExchangeID is EXCHANGE_ID (RFC 8881 section 18.35) for a client without state protection.
func ExchangeID(owner string, flags int) Raw {
	return Op(schema.OpExchangeID, Raw("verifier"), owner, flags, 0, 0)
}

// NewSession makes a client and its session with the given slots and the flags of EXCHANGE_ID and
// CREATE_SESSION.
func NewSession(ctx context.Context, c *Caller, minor uint32, owner string, slots, exchangeFlags, sessionFlags int) (*Session, error) {
	s := &Session{Caller: c, Minor: minor, Slots: make([]uint32, slots)}
	res, err := c.Compound(ctx, minor, ExchangeID(owner, exchangeFlags))
	if err != nil {
		return nil, fmt.Errorf("EXCHANGE_ID: %w", err)
	}
	if res.Status != 0 {
		return nil, fmt.Errorf("EXCHANGE_ID: status %d", res.Status)
	}
	d := decoder(res.Op(0))
	s.ClientID = d.Uint64()
	res, err = c.Compound(ctx, minor, Op(schema.OpCreateSession, s.ClientID, d.Uint32(), sessionFlags,
		Channel(ChannelLen, 64, slots), Channel(4096, 4, 2), 0x40000000, 1, oncrpc.AuthNone))
	if err != nil {
		return nil, fmt.Errorf("CREATE_SESSION: %w", err)
	}
	if res.Status != 0 {
		return nil, fmt.Errorf("CREATE_SESSION: status %d", res.Status)
	}
	s.ID = slices.Clone(res.Op(0)[:16])
	return s, nil
}

// Channel is a channel_attrs4: no header padding, messages of at most size bytes, all of them
// cacheable, no RDMA.
func Channel(size, operations, slots int) Raw {
	return Fields(0, size, size, size, operations, slots, 0)
}

// Next sends a COMPOUND with SEQUENCE and the operations, in a slot's next turn.
func (s *Session) Next(ctx context.Context, slot int, ops ...Raw) (*Results, error) {
	s.Slots[slot]++
	return s.Again(ctx, slot, ops...)
}

// Again repeats a COMPOUND in a slot's present turn. Its reply should be cached.
func (s *Session) Again(ctx context.Context, slot int, ops ...Raw) (*Results, error) {
	return s.Compound(ctx, s.Minor, append([]Raw{s.Sequence(slot)}, ops...)...)
}

// Sequence is SEQUENCE for a slot's present turn.
func (s *Session) Sequence(slot int) Raw {
	return Op(schema.OpSequence, s.ID, s.Slots[slot], slot, len(s.Slots)-1, true)
}

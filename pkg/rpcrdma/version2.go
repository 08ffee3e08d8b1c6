package rpcrdma

import (
	"fmt"
	"slices"
	"sync/atomic"

	"sluice.dev/sluice/pkg/rpcrdma/group"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// Extensions is a set of what version 2 can do beyond its base.
type Extensions uint8

// The extensions.
const (
	// TransportProperties: peers tell each other their properties, the size of their receive buffers above all.
	TransportProperties Extensions = 1 << iota
	// MessageContinuation: an RPC message may be sent in several Sends. It needs TransportProperties.
	MessageContinuation
	// SendBasedPlacement: bulk data are placed in receive buffers that are made for them. It needs TransportProperties.
	SendBasedPlacement

	allExtensions = TransportProperties | MessageContinuation | SendBasedPlacement
)

// Continuation is about MessageContinuation.
type Continuation struct {
	// MaxCallTransmissions and MaxReplyTransmissions bound the Sends of a call and of a reply, 1 to 256; 0 means 16. What holds for a connection
	// is the smaller of both peers'. A client posts receives for the replies of its calls, as many as each may need.
	MaxCallTransmissions, MaxReplyTransmissions int
}

// Placement is about SendBasedPlacement.
type Placement struct {
	// ReceiveBuffer is the length in bytes of the part of each receive that bulk data are placed in: a power of two from 4 KiB to 1 MiB. 0 means
	// 64 KiB. Pages of it are aligned.
	ReceiveBuffer int
	// MinLength is the length in bytes of the shortest argument or result that is placed. 0 means 4 KiB.
	MinLength int
	// Results is how a client wants results: wire.SendBased, which 0 means, or wire.Explicit, wire.Choice or wire.BySize, for which it exposes
	// memory. Those three need no SendBasedPlacement.
	Results wire.Placement
	// Threshold is a length in bytes: arguments that have it are exposed, and with wire.BySize results that have it are written. 0 means that no
	// argument is exposed; wire.BySize needs one.
	Threshold int
}

const (
	defaultTransmissions = 16
	maxTransmissions     = 256
	pageSize             = 4096
	maxReceiveBuffer     = 1 << 20
)

// completeExtensions fills in and checks what is about extensions.
func (cfg *Config) completeExtensions() error {
	for _, n := range []*int{&cfg.Continuation.MaxCallTransmissions, &cfg.Continuation.MaxReplyTransmissions} {
		if def(n, defaultTransmissions); *n < 1 || *n > maxTransmissions {
			return fmt.Errorf("rpcrdma: Config.Continuation has %d transmissions, must be 1 to %d", *n, maxTransmissions)
		}
	}
	def(&cfg.Placement.ReceiveBuffer, 64<<10)
	def(&cfg.Placement.MinLength, pageSize)
	if n := cfg.Placement.ReceiveBuffer; n < pageSize || n > maxReceiveBuffer || n&(n-1) != 0 {
		return fmt.Errorf("rpcrdma: Config.Placement.ReceiveBuffer is %d, must be a power of two from %d to %d", n, pageSize, maxReceiveBuffer)
	}
	if n := cfg.Placement.MinLength; n < 1 {
		return fmt.Errorf("rpcrdma: Config.Placement.MinLength is %d, must be 1 at least", n)
	}
	if p := &cfg.Placement; p.Results > wire.BySize || p.Threshold < 0 || p.Results == wire.BySize && p.Threshold == 0 {
		return fmt.Errorf("rpcrdma: Config.Placement wants results by %v with a threshold of %d, must be EXRW, TBSN, CHOICE, or BYSIZE with 1 at least",
			p.Results, p.Threshold)
	}
	if cfg.Placement.Results == 0 {
		cfg.Placement.Results = wire.SendBased
	}
	if cfg.has(MessageContinuation|SendBasedPlacement) && !cfg.has(TransportProperties) {
		return fmt.Errorf("rpcrdma: Config.Extensions has %#x, it needs TransportProperties", uint8(cfg.Extensions))
	}
	return nil
}

// has reports whether one of the extensions is offered.
func (cfg *Config) has(e Extensions) bool { return cfg.Extensions&e != 0 }

// callTransmissions and replyTransmissions are how many Sends a call and a reply may have as far as this side is concerned.
func (cfg *Config) callTransmissions() int {
	if !cfg.has(MessageContinuation) {
		return 1
	}
	return cfg.Continuation.MaxCallTransmissions
}

func (cfg *Config) replyTransmissions() int {
	if !cfg.has(MessageContinuation) {
		return 1
	}
	return cfg.Continuation.MaxReplyTransmissions
}

func (cfg *Config) offers(version int) bool { return slices.Contains(cfg.Versions, version) }

// completeVersions fills in and checks what is about versions.
func (cfg *Config) completeVersions() error {
	if len(cfg.Versions) == 0 {
		cfg.Versions = []int{wire.Version1}
	}
	for _, v := range cfg.Versions {
		if v != wire.Version1 && v != wire.Version2 {
			return fmt.Errorf("rpcrdma: Config.Versions has %d, must be 1 or 2", v)
		}
	}
	if extra := cfg.Extensions &^ allExtensions; extra != 0 {
		return fmt.Errorf("rpcrdma: Config.Extensions has %#x, which is none", uint8(extra))
	}
	if err := cfg.completeExtensions(); err != nil {
		return err
	}
	cfg.Limits.Version2, cfg.Limits.NoVersion1 = cfg.offers(wire.Version2), !cfg.offers(wire.Version1)
	return nil
}

// terms are what holds on a connection. They do not change, but are replaced as a whole.
type terms struct {
	// version is 0 until the first message has settled it.
	version int
	// sendLimit and recvLimit are the inline thresholds of messages from here and to here.
	sendLimit, recvLimit int
	// invalidate: replies may revoke the memory of their call.
	invalidate bool
	// backward: the peer takes calls of the reverse direction.
	backward bool
	// own and peer are the transport properties of both sides in version 2.
	own, peer Properties

	// layout is that of the peer's receives, if messages may be sent in groups. place: bulk data may be placed in them.
	layout *group.Layout
	place  bool
	// groups: calls may be sent so. callLimit and replyLimit are the most transmissions of a call from here and of the reply to it, sendLimits those
	// of a reply from here.
	groups                             bool
	ext                                Extensions // that both sides have
	callLimit, replyLimit, sendReplies int
	// back: the client takes groups in calls of the reverse direction, and the server in their replies.
	back bool
	// receive is how long the part of our receives for headers and payload is, as far as the peer knows.
	receive int

	users *atomic.Int32 // messages that are being made by these terms, or by others since the last wish for another size of receives
}

// use returns the terms for a message that is about to be made. When that is posted, unuse follows.
func (c *Conn) use() *terms {
	for {
		t := c.terms.Load()
		if t.users.Add(1); c.terms.Load() == t {
			return t
		}
		c.unuse(t)
	}
}

// unuse tells who waits for it that the terms of before a wish are not used any more.
func (c *Conn) unuse(t *terms) {
	if t.users.Add(-1) == 0 && c.terms.Load().users != t.users {
		select {
		case c.control.quiet <- struct{}{}:
		default:
		}
	}
}

func (t *terms) used() bool   { return t.users.Load() > 0 }
func (t *terms) unused() bool { return !t.used() }

// terms1 are those of version 1. Before the version is settled they hold too: the first message may be of version 1.
func (c *Conn) terms1(version int) *terms {
	own := c.privateData()
	return &terms{
		users:      new(atomic.Int32),
		version:    version,
		sendLimit:  min(own.SendSize, c.peer.ReceiveSize),
		recvLimit:  min(own.ReceiveSize, c.peer.SendSize),
		invalidate: own.RemoteInvalidation && c.peer.RemoteInvalidation,
		backward:   true,
	}
}

// terms2 are those of version 2, with what is known of the peer's properties. The loop is held.
func (c *Conn) terms2() *terms {
	peer := &c.control.values
	t := &terms{
		users:      c.terms.Load().users,
		version:    wire.Version2,
		sendLimit:  min(c.privateData().SendSize, int(peer.ReceiveSize())),
		recvLimit:  c.control.size(),
		invalidate: c.cfg.RemoteInvalidation,
		backward:   peer.Backward() != wire.BackwardNone,
		receive:    c.control.size(),
		own:        propertiesOf(c.control.own()),
		peer:       propertiesOf(peer),
	}
	if c.told {
		t.recvLimit = min(t.recvLimit, c.peer.SendSize)
	}
	if c.control.given {
		t.ext = TransportProperties
	}
	if c.groups.asm != nil {
		t.layout = layoutOf(peer)
		t.place = c.cfg.has(SendBasedPlacement) && len(t.layout.Targets) > 0 && t.layout.Gaps() <= wire.MaxThreshold
		t.back = c.backGroups()
		if c.server {
			t.groups = t.back && peer.Support()&wire.AcceptsRequest != 0
		} else { // a peer that told nothing may take XMTREQ nevertheless: its answer to the first one will say
			t.groups = peer.Support()&wire.AcceptsRequest != 0 || !c.control.given
		}
		t.callLimit, t.replyLimit, t.sendReplies = 1, 1, 1
		if peer.Support()&wire.AcceptsContinue != 0 && c.cfg.has(MessageContinuation) {
			t.ext |= MessageContinuation
			t.callLimit, t.replyLimit, t.sendReplies = c.cfg.callTransmissions(), c.cfg.replyTransmissions(), c.cfg.replyTransmissions()
			if t.groups {
				t.callLimit = min(t.callLimit, int(min(peer.RequestLimit(), maxTransmissions)))
				t.replyLimit = min(t.replyLimit, int(min(peer.ResponseLimit(), maxTransmissions)))
			}
		}
		if t.place {
			t.ext |= SendBasedPlacement
		}
	}
	if w := c.control.wish; w != nil { // the peer may go by it already, or be about to
		t.sendLimit = min(t.sendLimit, w.size)
		if t.layout != nil {
			t.layout, t.place = group.Plain(min(t.layout.Size, w.size)), false
		}
	}
	return t
}

// backGroups reports whether calls of the reverse direction, and their replies, may be groups: BRS of the client is 2. The loop is held.
func (c *Conn) backGroups() bool {
	if c.server {
		return c.control.values.Backward() == wire.BackwardGeneral
	}
	return c.cfg.ReverseCredits > 0 && c.control.told
}

// receiveSize is the size of receives in bytes where version 2 may be spoken: peers that know of no properties assume its default.
func (c *Conn) receiveSize() int {
	size := c.privateData().ReceiveSize
	if c.limits.Version2 {
		size = max(size, wire.DefaultReceiveSize)
	}
	return size
}

// settle makes a version that of the connection. The loop is held.
func (c *Conn) settle(t *terms) {
	c.limits.Version2, c.limits.NoVersion1 = t.version == wire.Version2, t.version == wire.Version2
	c.terms.Store(t)
	if c.server {
		c.receives.settle(c.layout(), reserve)
	} else {
		c.receives.settle(c.layout(), 0)
	}
}

// pin settles the version by the first message that is accepted. RDMA2_CONNPROP does so itself, when its values are good.
func (c *Conn) pin(h *wire.Header) {
	switch {
	case h.Procedure == wire.Error || h.Version == wire.Version1 && h.Procedure == wire.Done:
	case h.Version == wire.Version1:
		c.settle(c.terms1(wire.Version1))
	case h.Procedure == wire.ConnProp && c.cfg.has(TransportProperties):
	default:
		if err := c.groups.ready(c); err != nil {
			c.fail(err)
		}
		c.settle(c.terms2())
	}
}

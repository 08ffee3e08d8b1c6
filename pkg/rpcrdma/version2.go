package rpcrdma

import (
	"fmt"
	"slices"

	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// Extensions is a set of what version 2 can do beyond its base.
type Extensions uint8

// The extensions.
const (
	// TransportProperties: peers tell each other their properties, the size of their receive buffers above all.
	TransportProperties Extensions = 1 << iota

	allExtensions = TransportProperties
)

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
}

// terms1 are those of version 1. Before the version is settled they hold too: the first message may be of version 1.
func (c *Conn) terms1(version int) *terms {
	own := c.privateData()
	return &terms{
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
		version:    wire.Version2,
		sendLimit:  min(c.privateData().SendSize, int(peer.ReceiveSize())),
		recvLimit:  c.receiveSize(),
		invalidate: c.cfg.RemoteInvalidation,
		backward:   peer.Backward() != wire.BackwardNone,
		own:        propertiesOf(c.control.own()),
		peer:       propertiesOf(peer),
	}
	if c.told {
		t.recvLimit = min(t.recvLimit, c.peer.SendSize)
	}
	return t
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

// pin settles the version by the first message that is accepted.
func (c *Conn) pin(h *wire.Header) {
	switch {
	case h.Procedure == wire.Error || h.Version == wire.Version1 && h.Procedure == wire.Done:
	case h.Version == wire.Version1:
		c.settle(c.terms1(wire.Version1))
	default:
		c.settle(c.terms2())
	}
}

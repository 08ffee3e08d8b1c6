package oncrpc

import (
	"fmt"

	"sluice.dev/sluice/pkg/bufpool"
)

// bulk takes n bytes of the budget for c, and waits for them. kept bytes of c are in memory
// meanwhile and do not count.
func (l *link) bulk(c *tcpCall, n, kept int) error {
	if l.share == nil {
		return nil
	}
	ok, err := l.share.Acquire(&c.bulk, int64(n), c.ready)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRecord, err)
	}
	if ok {
		return nil
	}
	if kept > 0 {
		if !l.cfg.Budget.TryRetain(int64(kept)) {
			return fmt.Errorf("oncrpc: a call of %d bytes would wait for the memory of its reply, as too many do: %w", kept, bufpool.ErrExhausted)
		}
		defer l.cfg.Budget.Retain(-int64(kept))
	}
	l.waiting.Store(true)
	defer l.waiting.Store(false)
	return l.wait(l.grant)
}

// reserve takes memory of the budget for the reply to c, if that may be large: otherwise a peer
// that requests much and takes nothing could fill as much memory as it has calls. A large call
// first gives its own share back and then takes both at once, since a waiting call must hold
// nothing of the total. While it waits, its memory counts as retained, and too much of that ends
// the connection: few calls are large and have large replies. It waits until its connection has no
// other call, which its share would make it wait for.
func (l *link) reserve(c *tcpCall) error {
	if l.share == nil || l.cfg.Bindings == nil {
		return nil
	}
	b := l.cfg.Bindings(c.Program, c.Version)
	if b == nil {
		return nil
	}
	var err error
	if l.args, err = b.Plan(&l.plan, l.args[:0], c.Procedure, c.Args()); err != nil {
		return nil //nolint:nilerr // how to answer is the handler's business
	}
	n := min(l.plan.Bulk(), l.cfg.MaxRecord)
	if n == 0 {
		return nil
	}
	size := c.StreamLen()
	if size <= smallRecord {
		size = 0
	} else {
		if err := l.alone(); err != nil {
			return err
		}
		c.bulk.Release()
	}
	return l.bulk(c, n+size, size)
}

// alone waits until the current call is the connection's only one.
func (l *link) alone() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.inFlight.Load() > 1 {
		l.full = true
		l.mu.Unlock()
		err := l.wait(l.room)
		l.mu.Lock()
		if err != nil {
			return err
		}
	}
	return nil
}

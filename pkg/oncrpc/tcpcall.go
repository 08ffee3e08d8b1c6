package oncrpc

import (
	"errors"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
)

// tcpCall is a call received by a link, and its Responder.
type tcpCall struct {
	Call
	link     *link
	next     *tcpCall // in the link's free list
	mark     [4]byte
	bulk     bufpool.Grant
	ready    func() // of bulk
	began    time.Time
	observed bool
}

// newCall takes a slot among the calls in flight, and waits for one if there is none. It returns
// nil if no more calls are accepted.
func (l *link) newCall() (*tcpCall, error) {
	l.mu.Lock()
	for int(l.inFlight.Load()) >= l.cfg.MaxCalls {
		l.full = true
		l.mu.Unlock()
		if err := l.wait(l.room); err != nil {
			return nil, err
		}
		l.mu.Lock()
	}
	if l.draining {
		l.mu.Unlock()
		return nil, nil
	}
	l.inFlight.Add(1)
	c := l.free
	if c != nil {
		l.free, c.next = c.next, nil
	}
	l.mu.Unlock()
	if c == nil {
		c = &tcpCall{link: l}
		c.ready = func() { l.grant <- struct{}{} }
		c.Init(l.cfg.Pool, c)
	}
	return c, nil
}

// Respond implements [Responder].
func (c *tcpCall) Respond(*Call) {
	c.bulk.AwaitPeer(bufpool.Out)
	c.link.out.send(c, c.Reply.Len())
}

// errDropped is the cause of a connection's end after a dropped call.
var errDropped = errors.New("oncrpc: a call cannot be answered")

// Drop implements [Responder].
func (c *tcpCall) Drop(*Call) {
	c.link.fail(errDropped)
	c.finish()
}

// Supersede implements [Responder].
func (c *tcpCall) Supersede(*Call) { c.finish() }

func (c *tcpCall) outgoing() (*Message, *[4]byte) { return &c.Reply, &c.mark }

func (c *tcpCall) sent(err error) {
	c.Reach(Replied)
	if o := c.link.observer; o != nil && c.observed && err == nil {
		o.ReplySent(&c.Call, Bytes{Inline: c.Reply.Len()}, time.Since(c.began))
	}
	c.finish()
}

// finish gives the call back.
func (c *tcpCall) finish() {
	l := c.link
	c.Recycle()
	c.bulk.Release()
	c.observed = false
	l.mu.Lock()
	c.next, l.free = l.free, c
	l.inFlight.Add(-1)
	if l.full {
		l.full = false
		l.room <- struct{}{}
	}
	over := l.drainedLocked()
	l.mu.Unlock()
	if over {
		l.hangUp()
	}
}

package oncrpc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
)

// maxViews bounds the calls in flight that are views of a common read buffer, and so the buffers
// that a connection may pin. Further calls are copied.
const maxViews = 16

// receive is the receive loop. It returns the cause of the connection's end.
func (l *link) receive() error {
	for {
		n, err := l.sock.read(l.in)
		if err != nil {
			if errors.Is(err, io.EOF) && !l.in.idle() {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		l.stats.readCalls.Add(1)
		l.stats.bytesIn.Add(uint64(n))
		if l.observer != nil {
			l.batch = time.Now()
		}
		l.hold()
		err = l.handle()
		l.release()
		if err != nil {
			if l.observer != nil && errors.Is(err, ErrRecord) {
				l.observer.BadMessage(&l.conn, err)
			}
			return err
		}
	}
}

// hold corks this connection, and the connection that the handler forwards calls to.
func (l *link) hold() {
	l.out.Cork()
	if l.passedOn = l.conn.Batch; l.passedOn != nil {
		l.passedOn.Cork()
	}
}

// release uncorks both.
func (l *link) release() {
	if l.passedOn != nil {
		l.passedOn.Uncork()
	}
	l.out.Uncork()
}

// handle processes all records that were read.
func (l *link) handle() error {
	for {
		ev, err := l.in.next(&l.rec, l.inFlight.Load() >= maxViews)
		switch {
		case err != nil:
			return err
		case ev == needBytes:
			return nil
		case ev == large:
			err = l.admit()
		default:
			l.stats.recordsIn.Add(1)
			err = l.dispatch()
			l.rec.Release()
		}
		if err != nil {
			return err
		}
	}
}

// admit decides on a record that needs memory of its own.
func (l *link) admit() error {
	if l.large != nil {
		return l.admitLarge()
	}
	switch xid, kind := l.in.head(); {
	case kind == MsgReply && l.expects(xid):
		l.in.admit()
	case kind == MsgReply:
		l.in.skip()
	case kind != MsgCall:
		return fmt.Errorf("%w: message type is %d, must be 0 or 1", ErrRecord, kind)
	default:
		c, err := l.newCall()
		if err != nil {
			return err
		}
		if c == nil {
			l.in.skip()
			break
		}
		l.large = c
		l.reading.Store(true)
		if l.share == nil {
			l.in.admit()
		} else {
			l.in.begin()
		}
	}
	return nil
}

// admitLarge takes memory of the budget for the large call, of which the first part or everything
// has arrived.
func (l *link) admitLarge() error {
	if err := l.bulk(l.large, l.in.length(), 0); err != nil {
		return err
	}
	if !l.in.complete() {
		l.large.bulk.AwaitPeer(bufpool.In)
	}
	l.in.admit()
	return nil
}

// dispatch gives the current record to its role.
func (l *link) dispatch() error {
	if len(l.rec.Stream) == 0 || len(l.rec.Stream[0]) < headLen {
		return fmt.Errorf("%w: it has %d bytes, a message has at least %d", ErrRecord, l.rec.StreamLen(), MinReplyLen)
	}
	b := l.rec.Stream[0]
	switch kind := binary.BigEndian.Uint32(b[4:]); kind {
	case MsgReply:
		l.reply(binary.BigEndian.Uint32(b), &l.rec)
		return nil
	case MsgCall:
		return l.call()
	default:
		return fmt.Errorf("%w: message type is %d, must be 0 or 1", ErrRecord, kind)
	}
}

// call serves the current call.
func (l *link) call() error {
	c := l.large
	if c != nil {
		l.large = nil
		l.reading.Store(false)
		c.bulk.PeerDone()
	} else {
		var err error
		if c, err = l.newCall(); c == nil {
			return err
		}
	}
	c.Message, l.rec = l.rec, c.Message
	c.Conn = &l.conn
	c.Plan.MaxReply = l.cfg.MaxRecord
	if err := DecodeCall(&c.Call); err != nil {
		c.Refuse(err)
		if !refusable(err) {
			return fmt.Errorf("%w: %w", ErrRecord, err)
		}
		if l.observer != nil {
			l.observer.BadMessage(&l.conn, err)
		}
		return nil
	}
	if err := l.reserve(c); err != nil {
		c.finish()
		return err
	}
	if l.observer != nil {
		c.began = l.batch
		c.observed = true
		l.observer.CallReceived(&c.Call, Bytes{Inline: c.StreamLen()})
	}
	l.conn.Calls.Add(1)
	c.Reach(Serving)
	l.cfg.Handler.ServeRPC(&c.Call)
	return nil
}

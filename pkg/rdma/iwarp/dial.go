package iwarp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/rdma"
)

// Dial implements [rdma.Provider].
func (p *provider) Dial(ctx context.Context, address string, o rdma.Options) (rdma.Endpoint, error) {
	o.SetPrivateData(true)
	if err := checkOptions(&o); err != nil {
		return nil, err
	}
	d := net.Dialer{KeepAliveConfig: p.keepAlive()}
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("iwarp: %w", err)
	}
	conn := c.(*net.TCPConn)
	s, err := p.initiate(ctx, conn, &o)
	if err != nil {
		_ = conn.Close()
		if ctx.Err() != nil {
			err = fmt.Errorf("iwarp: connecting to %s: %w", address, context.Cause(ctx))
		}
		return nil, err
	}
	e, err := newEndpoint(conn, &p.cfg, &o, s)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	if p.cfg.Nudge > 0 {
		e.nudge(p.cfg.Nudge, nudges)
	}
	return e, nil
}

func (p *provider) keepAlive() net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: p.cfg.KeepAlive > 0, Idle: p.cfg.KeepAlive, Interval: max(p.cfg.KeepAlive/4, time.Second), Count: 4}
}

// tune sets TCP's options. Keepalive probes find a peer that vanished while the connection was
// idle; the same time bounds the wait for a vanished peer's acknowledgements, or window.
func (p *provider) tune(conn *net.TCPConn) {
	_ = conn.SetNoDelay(true)
	k := p.keepAlive()
	_ = conn.SetKeepAliveConfig(k)
	if !k.Enable {
		return
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return // later calls will fail too, with an error that is reported
	}
	_ = raw.Control(func(fd uintptr) {
		limit := k.Idle + time.Duration(k.Count)*k.Interval
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(limit.Milliseconds()))
	})
}

// initiate goes through the start-up as initiator.
func (p *provider) initiate(ctx context.Context, conn *net.TCPConn, o *rdma.Options) (s mpaParams, err error) {
	p.tune(conn)
	_ = conn.SetDeadline(time.Now().Add(p.cfg.ReplyTimeout)) // before stop could set another
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(longAgo) })
	defer stop()
	req := mpaFrame{crc: p.cfg.CRC == CRCRequire, revision: p.cfg.Revision, private: o.PrivateData}
	if p.cfg.Revision >= 2 {
		req.enhanced, req.ird, req.ord = true, uint16(o.IRD), uint16(o.ORD)
	}
	if _, err := conn.Write(req.append(nil)); err != nil {
		return s, fmt.Errorf("iwarp: sending the MPA request: %w", err)
	}
	rep, err := readMPA(conn, true)
	if err != nil {
		return s, err
	}
	if rep.rejected {
		return s, &rdma.RejectedError{PrivateData: rep.private}
	}
	if rep.enhanced != req.enhanced {
		return s, fmt.Errorf("%w: the reply has enhanced data: %v, the request: %v", errMPA, rep.enhanced, req.enhanced)
	}
	s = mpaParams{private: rep.private, crc: req.crc || rep.crc, markers: rep.markers, ird: o.IRD, ord: o.ORD}
	if !rep.enhanced {
		s.ord = min(s.ord, unknownDepth)
	} else {
		if rep.ord != mpaUnnegotiated {
			if int(rep.ord) > o.IRD {
				err := codeIRD.errorf("the peer wants %d RDMA Reads at once, %d are possible", rep.ord, o.IRD)
				return s, sendTerminate(conn, s, err)
			}
			s.ird = int(rep.ord)
		}
		if rep.ird != mpaUnnegotiated {
			s.ord = min(s.ord, int(rep.ird))
		}
	}
	if !stop() {
		return s, ctx.Err()
	}
	return s, conn.SetDeadline(time.Time{})
}

// unknownDepth is the number of outstanding Reads at a peer that did not announce its IRD.
const unknownDepth = 1

// sendTerminate sends the Terminate for an error before there is an endpoint, and returns the
// error.
func sendTerminate(conn *net.TCPConn, s mpaParams, err error) error {
	var t *TerminateError
	if !errors.As(err, &t) {
		return err
	}
	payload := t.payload()
	tx := sender{crc: s.crc, markers: s.markers}
	_, _ = conn.Write(tx.appendTerminate(nil, payload))
	return err
}

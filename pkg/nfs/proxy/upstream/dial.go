package upstream

import (
	"context"

	"sluice.dev/sluice/pkg/oncrpc"
)

// Dial makes one attempt to connect to the backend for the gateway's own calls, from a source port
// below 1024 if one is free. The caller closes the connection; Backend.Close closes it at the
// latest. Nothing is resent.
func (b *Backend) Dial(ctx context.Context) (Conn, error) { return b.dialOwn(ctx, b.cfg.Dialer) }

// DialTCP is Dial for another TCP service of the backend, such as MOUNT, at "host:port".
func (b *Backend) DialTCP(ctx context.Context, address string) (Conn, error) {
	return b.dialOwn(ctx, &TCP{Address: address, Config: oncrpc.Config{Pool: b.cfg.Pool}})
}

func (b *Backend) dialOwn(ctx context.Context, d Dialer) (Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, b.cfg.DialTimeout)
	defer cancel()
	defer context.AfterFunc(b.ctx, cancel)()
	for tries := 0; ; tries++ {
		port := b.takePort(tries)
		b.counts.dials.Add(1)
		conn, err := d.Dial(ctx, port, noPeer{})
		if err == nil {
			return b.track(conn, port)
		}
		b.counts.dialErrors.Add(1)
		b.ports.put(port)
		switch {
		case port == 0 || ctx.Err() != nil:
			return nil, err
		case portDenied(err):
			b.setPortsDenied()
		case !portTaken(err):
			return nil, err
		}
	}
}

// track ties a caller's connection to the life of the backend.
func (b *Backend) track(conn Conn, port int) (Conn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		_ = conn.Close()
		b.ports.put(port)
		return nil, ErrClosed
	}
	b.running.Go(func() {
		defer context.AfterFunc(b.ctx, func() { _ = conn.Close() })()
		conn.Wait()
		b.ports.put(port)
	})
	return conn, nil
}

package oncrpc

import (
	"context"
	"fmt"
	"net"
)

// Client is a [Requester] over TCP, with many calls in flight. With Config.Handler set it also
// serves the server's calls on the same connection. Small replies may share a buffer: a reply that
// is kept holds up to Config.ReadBuffer bytes.
type Client struct{ link *link }

// Dial connects to addr ("host:port"). The connection lasts until Close, or until it breaks: then
// all requests fail with the cause, later ones too. cfg's limits on bulk memory and calls apply to
// calls of the server.
func Dial(ctx context.Context, addr string, cfg Config) (*Client, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("oncrpc: %w", err)
	}
	c, err := NewClient(conn, cfg)
	if err != nil {
		_ = conn.Close()
	}
	return c, err
}

// NewClient makes a client of a TCP or Unix stream connection, which it owns.
func NewClient(conn net.Conn, cfg Config) (*Client, error) {
	if err := cfg.defaults(); err != nil {
		return nil, err
	}
	if cfg.Handler == nil {
		cfg.Handler = &Mux{}
	}
	sock, err := newTCPSocket(conn, &cfg)
	if err != nil {
		return nil, err
	}
	l := newLink(&cfg, sock, conn.LocalAddr(), conn.RemoteAddr())
	l.running.Go(l.serve)
	return &Client{l}, nil
}

// Submit implements [Requester].
func (c *Client) Submit(r *Request) { c.link.Submit(r) }

func (c *Client) waiters() *Waiters { return &c.link.Waiters }

// NextXID implements [Requester].
func (c *Client) NextXID() uint32 { return c.link.NextXID() }

// Cancel implements [Canceler].
func (c *Client) Cancel(r *Request, cause error) { c.link.Cancel(r, cause) }

// Close ends the connection, fails outstanding requests, and returns soon. [Client.Wait] waits for
// the connection's goroutines.
func (c *Client) Close() error { return c.link.Close() }

// Wait returns when the connection and its goroutines have ended. A request's Done must not call
// it.
func (c *Client) Wait() { c.link.running.Wait() }

// Done is closed when the connection has ended; then Err returns the cause.
func (c *Client) Done() <-chan struct{} { return c.link.done }

// Err returns the cause of the connection's end, nil before it.
func (c *Client) Err() error { return c.link.err() }

// Conn describes the connection.
func (c *Client) Conn() *Conn { return &c.link.conn }

// Stats returns counters since the connection began.
func (c *Client) Stats() Stats { return c.link.stats.snapshot() }

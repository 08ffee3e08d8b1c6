package proxy

import (
	"sluice.dev/sluice/pkg/nfs/access"
	"sluice.dev/sluice/pkg/nfs/proxy/rewrite"
	"sluice.dev/sluice/pkg/nfs/proxy/upstream"
	"sluice.dev/sluice/pkg/oncrpc"
)

// clientConn is a client's connection with its link to the backend. ServeRPC alone uses the fields
// other than link and gone.
type clientConn struct {
	s    *Server
	conn *oncrpc.Conn
	link *upstream.Link

	rules  *access.Rules // source of rule
	rule   *access.Rule  // nil: the client is refused
	caller rewrite.Caller

	gone bool // disconnected; guarded by rootWaiters.mu
}

type clientConnKey struct{}

// clientOf returns the state of a connection; the first call makes it.
func (s *Server) clientOf(conn *oncrpc.Conn) *clientConn {
	if p, ok := conn.Values[clientConnKey{}].(*clientConn); ok && p.s == s {
		return p
	}
	p := &clientConn{s: s, conn: conn}
	p.link = s.backend.Open(conn, (*callbackHandler)(p))
	conn.Values[clientConnKey{}] = p
	conn.Batch = p.link
	s.running.Go(func() {
		select {
		case <-conn.Done:
		case <-s.closed:
		}
		p.link.Close()
		s.waiters.dropClient(p)
	})
	return p
}

// allowed reports whether the current rules admit the client, and updates caller.
func (p *clientConn) allowed() bool {
	if rules := p.s.rules.Load(); rules != p.rules {
		p.rules, p.rule = rules, rules.Find(p.conn.Remote.Addr())
		if p.rule != nil {
			p.caller = rewrite.Caller{
				ReadOnly: p.rule.ReadOnly, Squash: p.rule.Squash, AnonUID: access.Anonymous, AnonGID: access.Anonymous,
			}
		}
	}
	return p.rule != nil
}

//go:build verbs

package verbs

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/rdma"
)

// enough messages show that a connection works.
const enough = 200

// echo returns messages, over one buffer.
type echo struct {
	ep     rdma.Endpoint
	buf    [][]byte
	got    atomic.Int64
	most   int64         // limit of answered messages; 0: none
	enough chan struct{} // closed after enough messages
	posts  interface{ PostReceives(rs []rdma.Receive) error }
}

func (e *echo) Completed(batch []rdma.Completion) {
	for _, c := range batch {
		if c.Op == rdma.Recv {
			n := e.got.Add(1)
			if n == enough {
				close(e.enough)
			}
			// Serve reports the connection's end
			_ = e.posts.PostReceives([]rdma.Receive{{Segments: e.buf}})
			if e.most > 0 && n > e.most {
				continue
			}
			_ = e.ep.Post([]rdma.WorkRequest{{Op: rdma.Send, Signaled: true, Local: e.buf}})
		}
	}
}

func (e *echo) Sent([]uint64) {}

// pair is a connection with a message in transit, at all times without a limit.
type pair struct {
	l       rdma.Listener
	domains [2]rdma.Domain
	shared  rdma.SRQ // the acceptor's receives, if not its own
	ends    [2]*echo // dialer and acceptor
	served  [2]chan error
}

// connectPair connects p to q, whose end has its receives in an SRQ or its own queue. most bounds
// the answers of each end; 0 means no limit.
func connectPair(t *testing.T, p, q rdma.Provider, pool *bufpool.Pool, most int64, share bool) *pair {
	t.Helper()
	l, err := q.Listen(t.Context(), *address)
	if err != nil {
		t.Fatal(err)
	}
	c := &pair{l: l}
	var options [2]rdma.Options
	for i := range c.ends {
		if c.domains[i], err = []rdma.Provider{p, q}[i].NewDomain(); err != nil {
			t.Fatal(err)
		}
		if err := c.domains[i].Register(pool); err != nil {
			t.Fatal(err)
		}
		buf, err := pool.Get(1000)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(buf.Release)
		c.ends[i] = &echo{buf: [][]byte{buf.B}, enough: make(chan struct{}), most: most}
		options[i] = rdma.Options{IRD: 4, ORD: 4, Domain: c.domains[i], Receives: []rdma.Receive{{Segments: c.ends[i].buf}}}
	}
	accepted := make(chan error, 1)
	go func() {
		in, err := l.Accept()
		if err == nil && share {
			if c.shared, err = in.NewSRQ(c.domains[1], 16); err == nil {
				err = c.shared.PostReceives(options[1].Receives)
			}
			options[1].SRQ, options[1].Receives = c.shared, nil
		}
		if err == nil {
			c.ends[1].ep, err = in.Accept(options[1])
		}
		accepted <- err
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if c.ends[0].ep, err = p.Dial(ctx, l.Addr().String(), options[0]); err != nil {
		t.Fatal(err)
	}
	if err := <-accepted; err != nil {
		t.Fatal(err)
	}
	for i, e := range c.ends {
		if e.posts = e.ep; i == 1 && share {
			e.posts = c.shared
		}
		c.served[i] = make(chan error, 1)
		go func() { c.served[i] <- e.ep.Serve(e) }()
	}
	if err := c.ends[0].ep.Post([]rdma.WorkRequest{{Op: rdma.Send, Signaled: true, Local: c.ends[0].buf}}); err != nil {
		t.Fatal(err)
	}
	return c
}

// free closes the shared queue and the domains, whose endpoints have ended.
func (c *pair) free(t *testing.T) {
	t.Helper()
	if c.shared != nil {
		if err := c.shared.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, d := range c.domains {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

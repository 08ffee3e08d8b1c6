package sluicectl

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/binding"
	"sluice.dev/sluice/pkg/nfs/client"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma/iwarp"
	"sluice.dev/sluice/pkg/rpcrdma"
)

// session is a connection to a server.
type session struct {
	*client.Client
	app    *app
	target *target
	pool   *bufpool.Pool
	cred   oncrpc.Auth
	conn   client.Conn         // either this: one connection
	link   *client.Reconnector // or that: one connection after another
	mnt    *oncrpc.Client      // for MOUNT on a port of its own
	nfs    client.Version
	root   nfs3.Handle

	outages *outages
}

// dial connects, without a mount. With reconnect, the session survives its connection.
func (a *app) dial(ctx context.Context, t *target, reconnect bool) (*session, error) {
	return a.dialWith(ctx, t, reconnect, bufpool.New(0))
}

// dialWith is dial with memory of a pool.
func (a *app) dialWith(ctx context.Context, t *target, reconnect bool, pool *bufpool.Pool) (*session, error) {
	cred, err := client.ProcessCred()
	if err != nil {
		return nil, err
	}
	provider, cfg, err := a.opts.check()
	if err != nil {
		return nil, err
	}
	s := &session{app: a, target: t, pool: pool, cred: cred, outages: &outages{}}
	connect := func(ctx context.Context) (client.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, a.opts.timeout)
		defer cancel()
		if t.rdma {
			return s.dialRDMA(ctx, provider, cfg)
		}
		return s.dialTCP(ctx)
	}
	first := true // an error of another kind of server is reported at once
	dial := func(ctx context.Context) (client.Conn, error) {
		conn, err := connect(ctx)
		if err == nil && first {
			err = s.probe(ctx, conn)
		}
		first = false
		return conn, err
	}
	if reconnect && a.opts.reconnect > 0 {
		s.link, err = client.NewReconnector(ctx, client.ReconnectConfig{
			Dial: dial, Patience: a.opts.reconnect,
			OnLost: func(cause error) {
				s.outages.begin()
				a.note("%s; connecting again, for up to %v", reason(cause), a.opts.reconnect)
			},
			OnResumed: func(d time.Duration) {
				s.outages.end()
				a.note("the server answers again, after %v", d.Round(100*time.Millisecond))
			},
		})
	} else {
		s.conn, err = connect(ctx)
	}
	if isForeign(err) {
		other := schemeRDMA
		if t.rdma {
			other = schemeTCP
		}
		err = &failure{"the server does not answer as expected from " + t.scheme() + "://; " + other + ":// may be right, or another port", err}
	}
	if err != nil {
		return nil, cannot(err, "connect to %s", t.address)
	}
	s.Client = s.newClient()
	return s, nil
}

// probe makes a NULL call on a new connection, and ends it if there is no answer.
func (s *session) probe(ctx context.Context, conn client.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, s.app.opts.timeout)
	defer cancel()
	err := client.New(client.Config{Requester: conn, Pool: s.pool, Cred: s.cred}).Null(ctx)
	if err == nil || errors.As(err, new(*oncrpc.StatusError)) {
		return nil
	}
	_ = conn.Close()
	<-conn.Done()
	return err
}

// isForeign reports whether an error of a new connection is typical for servers of something else.
func isForeign(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) ||
		errors.Is(err, oncrpc.ErrRecord) || errors.Is(err, os.ErrDeadlineExceeded)
}

// mount connects and finds the export's root.
func (a *app) mount(ctx context.Context, t *target, reconnect bool) (*session, error) {
	s, err := a.dial(ctx, t, reconnect)
	if err != nil {
		return nil, err
	}
	short, cancel := s.patience(ctx)
	defer cancel()
	if t.mount != "" {
		if s.mnt, err = oncrpc.Dial(short, t.mount, s.tcpConfig()); err != nil {
			s.close()
			return nil, cannot(err, "connect to %s for MOUNT", t.mount)
		}
	}
	if err = s.chooseNFS(short); err == nil {
		err = s.mountExport(short)
	}
	if err != nil {
		s.close()
		return nil, cannot(err, "mount %s of %s", t.export, t.address)
	}
	return s, nil
}

// mountExport finds the root. Servers may have an export at another path in version 4, or not at
// all: without --nfs it asks for version 3 then.
func (s *session) mountExport(ctx context.Context) (err error) {
	s.root, err = s.Mount(ctx, s.target.export)
	if s.nfs == client.V3 || s.app.opts.nfs != automatic || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_ = s.Close(ctx)
	s.useNFS(client.V3)
	var e error
	if s.root, e = s.Mount(ctx, s.target.export); e != nil {
		return err
	}
	return nil
}

// chooseNFS makes the client speak the version of --nfs, or the server's best.
func (s *session) chooseNFS(ctx context.Context) (err error) {
	v := client.V3
	switch s.app.opts.nfs {
	case automatic:
		v, err = client.Best(ctx, s.clientConfig())
	case client.V42.String():
		v = client.V42
	}
	s.useNFS(v)
	return err
}

func (s *session) useNFS(v client.Version) {
	s.nfs = v
	s.Client = s.newClient()
}

func (s *session) clientConfig() client.Config {
	cfg := client.Config{Version: s.nfs, Requester: s.requester(), Pool: s.pool, Cred: s.cred, OnDelay: s.app.delayed}
	if s.mnt != nil {
		cfg.Mount = s.mnt
	}
	return cfg
}

func (s *session) newClient() *client.Client { return client.New(s.clientConfig()) }

func (s *session) requester() oncrpc.Requester {
	if s.link != nil {
		return s.link
	}
	return s.conn
}

func (s *session) tcpConfig() oncrpc.Config {
	spin := s.app.opts.spin
	return oncrpc.Config{Pool: s.pool, Bindings: binding.For, Thread: spin > 0, Spin: spin}
}

func (s *session) dialTCP(ctx context.Context) (client.Conn, error) {
	d := net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: keepAliveIdle, Interval: keepAliveInterval, Count: keepAliveCount},
		Control:         limitSending,
	}
	conn, err := d.DialContext(ctx, "tcp", s.target.address)
	if err != nil {
		return nil, err
	}
	c, err := oncrpc.NewClient(conn, s.tcpConfig())
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return c, nil
}

func (s *session) dialRDMA(ctx context.Context, soft iwarp.Config, cfg rpcrdma.Config) (client.Conn, error) {
	p, err := s.app.opts.open(ctx, s.target.address, soft)
	if err != nil {
		return nil, err
	}
	cfg.Pool, cfg.Bindings = s.pool, binding.For
	cfg.RemoteInvalidation = true
	c, err := rpcrdma.Dial(ctx, p, s.target.address, cfg)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// close unmounts, and ends the connections.
func (s *session) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if s.root != nil {
		_ = s.Unmount(ctx, s.target.export) // the server only keeps a list
	}
	if s.Client != nil {
		_ = s.Close(ctx) // otherwise the lease ends the server's state
	}
	if s.mnt != nil {
		_ = s.mnt.Close()
		s.mnt.Wait()
	}
	if s.conn != nil {
		_ = s.conn.Close()
		<-s.conn.Done()
	}
	if s.link != nil {
		_ = s.link.Close()
		s.link.Wait()
	}
}

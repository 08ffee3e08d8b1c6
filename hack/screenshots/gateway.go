package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	config "sluice.dev/sluice/api/config/v1alpha1"
	status "sluice.dev/sluice/api/status/v1alpha1"
	"sluice.dev/sluice/internal/gateway"
	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/binding"
	"sluice.dev/sluice/pkg/nfs/client"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma/iwarp"
	"sluice.dev/sluice/pkg/rpcrdma"
)

// subject is a gateway with clients that read and write.
type subject struct {
	g       *gateway.Gateway
	dir     string
	stop    context.CancelFunc
	clients sync.WaitGroup
}

// configuration has an export that is served and one that cannot be.
const configuration = `apiVersion: config.sluice.dev/v1alpha1
kind: GatewayConfig
admin: {address: "127.0.0.1:0"}
stateDir: %[1]s/state
exports:
- name: home
  listeners:
  - {network: rdma, address: "127.0.0.1:0"}
  - {network: tcp, address: "127.0.0.1:0"}
  backend: {volume: {path: %[1]s/home}}
  access: [{from: {networks: [127.0.0.0/8]}, mode: ReadWrite, squash: None}]
- name: scratch
  listeners:
  - {network: rdma, address: "127.0.0.1:0"}
  - {network: tcp, address: "127.0.0.1:0"}
  backend: {volume: {path: %[1]s/scratch}}
  access: [{from: {networks: [127.0.0.0/8]}, mode: ReadWrite, squash: None}]
- name: archive
  listeners: [{network: tcp, address: "127.0.0.1:0"}]
  backend: {volume: {path: %[1]s/archive}}
  access: [{from: {networks: [127.0.0.0/8]}}]
`

// start starts the gateway and its clients. The directory of the export archive is missing.
func start(version string) (s *subject, err error) {
	dir, err := os.MkdirTemp("", "sluice-")
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	s = &subject{dir: dir, stop: stop}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	for _, name := range []string{"home", "scratch"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			return nil, err
		}
	}
	file := filepath.Join(dir, "gateway.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, configuration, dir), 0o600); err != nil {
		return nil, err
	}
	g, err := gateway.New(gateway.Options{Version: version, File: file, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	s.g = g
	if err := g.Start(); err != nil {
		return nil, err
	}
	st := g.Status()
	for i := range st.Exports {
		for _, l := range st.Exports[i].Listeners {
			if l.State != status.Listening {
				continue
			}
			c, err := dial(ctx, l.Network, l.Address)
			if err != nil {
				return nil, err
			}
			pace := time.Duration(20*(i+1)) * time.Millisecond
			s.clients.Go(func() { c.work(ctx, string(l.Network), pace) })
		}
	}
	return s, nil
}

// close ends the clients and the gateway.
func (s *subject) close() error {
	s.stop()
	s.clients.Wait()
	var err error
	if s.g != nil {
		err = s.g.Stop(context.Background())
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// conn is a client with one connection.
type conn struct {
	*client.Client
	requester oncrpc.Requester
	ended     <-chan struct{}
}

func dial(ctx context.Context, network config.Network, address string) (*conn, error) {
	pool := bufpool.New(0)
	c := new(conn)
	if network == config.RDMA {
		p, err := iwarp.New(iwarp.Config{})
		if err != nil {
			return nil, err
		}
		r, err := rpcrdma.Dial(ctx, p, address, rpcrdma.Config{Pool: pool, Bindings: binding.For, RemoteInvalidation: true})
		if err != nil {
			return nil, err
		}
		c.requester, c.ended = r, r.Done()
	} else {
		r, err := oncrpc.Dial(ctx, address, oncrpc.Config{Pool: pool, Bindings: binding.For})
		if err != nil {
			return nil, err
		}
		c.requester, c.ended = r, r.Done()
	}
	cred, err := client.ProcessCred()
	if err != nil {
		return nil, err
	}
	c.Client = client.New(client.Config{Requester: c.requester, Pool: pool, Cred: cred})
	return c, nil
}

// work writes and reads a file until ctx ends, with a pause after each round. Files grow and
// shrink.
func (c *conn) work(ctx context.Context, name string, pace time.Duration) {
	defer func() {
		_ = c.requester.Close()
		<-c.ended
	}()
	root, err := c.Mount(ctx, "/")
	for round := 0; err == nil && ctx.Err() == nil; round++ {
		var o client.Object
		if o, err = c.Create(ctx, root, name, nfs3.Unchecked, nfs3.SetAttrs{}, nfs3.Verifier{}); err != nil {
			return
		}
		data := make([]byte, 16<<10+(round%40)<<14)
		if err = c.WriteAt(ctx, o.Handle, data[:len(data)/4], 0, nfs3.Unstable); err != nil {
			return
		}
		if err = c.WriteAt(ctx, o.Handle, data[len(data)-1:], uint64(len(data)-1), nfs3.Unstable); err != nil {
			return
		}
		if _, err = c.ReadAt(ctx, o.Handle, data, 0); err != nil {
			return
		}
		if round%25 == 0 {
			_, _ = c.Lookup(ctx, root, "missing")
		}
		select {
		case <-time.After(pace):
		case <-ctx.Done():
		}
	}
}

package gateway

import (
	config "sluice.dev/sluice/api/config/v1alpha1"
	status "sluice.dev/sluice/api/status/v1alpha1"
	"sluice.dev/sluice/internal/names"
	"sluice.dev/sluice/pkg/rpcrdma"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// Versions of RPC-over-RDMA, and what of version 2 an export offers.

func extensions(t *config.Transport) (set rpcrdma.Extensions) {
	for _, name := range t.Extensions {
		x, err := names.ParseExtension(string(name))
		if err != nil {
			panic(err) // the configuration knows no other
		}
		set |= x
	}
	return set
}

// speak has cfg offer what t says.
func speak(cfg rpcrdma.Config, t *config.Transport) rpcrdma.Config {
	cfg.Versions, cfg.Extensions = t.RPCRDMAVersions, extensions(t)
	if c := t.Continuation; c != nil {
		cfg.Continuation = rpcrdma.Continuation(*c)
	}
	if p := t.Placement; p != nil {
		cfg.Placement = rpcrdma.Placement{ReceiveBuffer: int(p.ReceiveBuffer), MinLength: int(p.MinLength)}
	}
	return cfg
}

func properties(p *rpcrdma.Properties) status.Properties {
	return status.Properties{
		ReceiveSize: p.ReceiveSize, Backward: names.Backward(p.Backward), Placement: p.Targets,
		CallTransmissions: p.RequestLimit, ReplyTransmissions: p.ResponseLimit,
	}
}

// versionLabels name the versions that connections may have; the first one stands before the client's first message.
var versionLabels = [...]string{"unsettled", "1", "2"}

// versions counts the RPC-over-RDMA connections by version.
func (c *clients) versions() (n [wire.Version2 + 1]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cl := range c.byConn {
		if cl.rdma != nil {
			n[cl.rdma.Negotiated().Version]++
		}
	}
	return n
}

package sluicectl

import (
	"fmt"
	"strconv"
	"time"

	"sluice.dev/sluice/internal/names"
	"sluice.dev/sluice/pkg/nfs/client"
	"sluice.dev/sluice/pkg/rdma/iwarp"
	"sluice.dev/sluice/pkg/rpcrdma"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
)

// options are the flags of every command.
type options struct {
	crc     string
	spin    time.Duration
	inline  int
	credits int
	fpdu    string
	version string
	ext     string
	rfc5666 string
	dialect string
	nfs     string
	timeout time.Duration
	// reconnect bounds an outage of the server; 0 ends a command with its connection.
	reconnect time.Duration
	// How data are placed by version 2.
	results                             string
	receiveBuffer, minLength, threshold sizeFlag
	// provider carries RDMA, by device if that is not "".
	provider, device string
}

// check checks the options, and returns those of iWARP and those of RPC-over-RDMA.
func (o *options) check() (p iwarp.Config, cfg rpcrdma.Config, err error) {
	switch o.crc {
	case "on":
		p.CRC = iwarp.CRCRequire
	case "off":
		p.CRC = iwarp.CRCOff
	default:
		return p, cfg, fmt.Errorf("--crc is %q, must be on or off", o.crc)
	}
	switch o.fpdu {
	case "largest":
		p.MaxFPDU = iwarp.FPDULargest
	case "segment":
		p.MaxFPDU = iwarp.FPDUSegment
	default:
		if p.MaxFPDU, err = strconv.Atoi(o.fpdu); err != nil || p.MaxFPDU < 256 || p.MaxFPDU > 65535 {
			return p, cfg, fmt.Errorf("--fpdu is %q, must be largest, segment, or 256 to 65535", o.fpdu)
		}
	}
	if o.spin < 0 || o.spin > time.Millisecond {
		return p, cfg, fmt.Errorf("--spin is %v, must be 0 to 1ms", o.spin)
	}
	p.Spin = o.spin
	if o.inline < 1024 || o.inline > 262144 || o.inline%1024 != 0 {
		return p, cfg, fmt.Errorf("--inline is %d, must be a multiple of 1024 from 1024 to 262144", o.inline)
	}
	if o.credits < 1 || o.credits > 4096 {
		return p, cfg, fmt.Errorf("--credits is %d, must be 1 to 4096", o.credits)
	}
	if err := o.checkProvider(); err != nil {
		return p, cfg, err
	}
	switch o.nfs {
	case automatic, client.V3.String(), client.V42.String():
	default:
		return p, cfg, fmt.Errorf("--nfs is %q, must be auto, 3 or 4.2", o.nfs)
	}
	if o.timeout <= 0 {
		return p, cfg, fmt.Errorf("--timeout is %v, must be more than 0", o.timeout)
	}
	if o.reconnect < 0 {
		return p, cfg, fmt.Errorf("--reconnect is %v, must not be negative", o.reconnect)
	}
	cfg.InlineCall, cfg.InlineReply, cfg.Credits = o.inline, o.inline, credit.Static(o.credits)
	if cfg.Versions, cfg.Extensions, err = o.versions(); err != nil {
		return p, cfg, err
	}
	if cfg.Dialect, err = names.ParseDialect(o.dialect); err != nil {
		return p, cfg, fmt.Errorf("--dialect: %w", err)
	}
	if err := o.oldForms(&cfg); err != nil {
		return p, cfg, err
	}
	cfg.Placement, err = o.placement()
	return p, cfg, err
}

package sluicectl

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"sluice.dev/sluice/pkg/rpcrdma"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// Bounds of the flags, in bytes.
const (
	minReceiveBuffer, maxReceiveBuffer = 4 << 10, 1 << 20
	maxMinLength                       = 1 << 20
	maxThreshold                       = 1 << 30
)

// automatic is the value of --results that chooses by the round trip, near its limit.
const (
	automatic = "auto"
	near      = 50 * time.Microsecond
)

// placementFlags adds the flags of version 2's placement of data.
func (o *options) placementFlags(f *pflag.FlagSet) {
	o.receiveBuffer, o.minLength = 64<<10, 4<<10
	f.StringVar(&o.results, "results", automatic,
		"version 2: how data shall come: auto (by RDMA on links below 50µs, otherwise TBSN), TBSN (in receives), EXRW (by RDMA Writes), CHOICE (the server's), or BYSIZE (EXRW from --threshold on)")
	f.Var(&o.threshold, "threshold", "version 2: arguments from this length on are read by RDMA, 0 means none; with --results BYSIZE results from it on are written")
	f.Var(&o.minLength, "min-length", "version 2: the shortest argument or result that is placed, 1 to 1MiB")
	f.Var(&o.receiveBuffer, "receive-buffer", "version 2: how much of each receive data are placed in, a power of two from 4KiB to 1MiB")
}

// placement checks these flags. They have no effect on version 1.
func (o *options) placement() (p rpcrdma.Placement, err error) {
	p = rpcrdma.Placement{ReceiveBuffer: int(o.receiveBuffer), MinLength: int(o.minLength), Threshold: int(o.threshold)}
	for _, x := range []wire.Placement{wire.Explicit, wire.SendBased, wire.Choice, wire.BySize} {
		if strings.EqualFold(o.results, x.String()) {
			p.Results = x
		}
	}
	if o.results == automatic && p.Threshold == 0 {
		p.Near = near
	}
	switch n := p.ReceiveBuffer; {
	case p.Results == 0 && o.results != automatic:
		err = fmt.Errorf("--results is %q, must be auto, TBSN, EXRW, CHOICE or BYSIZE", o.results)
	case p.Results == wire.BySize && p.Threshold == 0:
		err = fmt.Errorf("--results %v needs a --threshold", p.Results)
	case p.Threshold > maxThreshold:
		err = fmt.Errorf("--threshold is %s, must be up to 1GiB", &o.threshold)
	case p.MinLength < 1 || p.MinLength > maxMinLength:
		err = fmt.Errorf("--min-length is %s, must be 1 to 1MiB", &o.minLength)
	case n < minReceiveBuffer || n > maxReceiveBuffer || n&(n-1) != 0:
		err = fmt.Errorf("--receive-buffer is %s, must be a power of two from 4KiB to 1MiB", &o.receiveBuffer)
	}
	return p, err
}

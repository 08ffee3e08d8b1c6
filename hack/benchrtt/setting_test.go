package benchrtt

import (
	"fmt"
	"time"

	"sluice.dev/sluice/pkg/rpcrdma"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// The limits of all measurements. Receives of the extension have a segment for headers and one for
// data.
const (
	inline        = 4 << 10
	credits       = 32
	receiveHead   = 4 << 10
	receiveData   = 64 << 10
	transmissions = 17 // 1 MiB is 16 times 64 KiB, and one more where it is not aligned
)

// engine is a column of the table.
type engine struct {
	name string
	set  func(*rpcrdma.Config)
	// extended expects one round trip and no registration for each call.
	extended bool
	// slower admits more round trips than those of version 1.
	slower bool
}

var engines = []engine{
	{name: "version 1", set: func(cfg *rpcrdma.Config) { cfg.Versions = []int{1} }},
	{name: "version 2", set: func(cfg *rpcrdma.Config) { cfg.Versions = []int{2} }},
	{name: "version 2 WorkingGroup", set: func(cfg *rpcrdma.Config) { cfg.Versions, cfg.Dialect = []int{2}, wire.V2WorkingGroup }},
	{name: "version 1 Padding", set: func(cfg *rpcrdma.Config) { cfg.Versions, cfg.RFC5666 = []int{1}, rpcrdma.Padding }},
	{name: "version 1 ReadRead", slower: true, set: func(cfg *rpcrdma.Config) { cfg.Versions, cfg.RFC5666 = []int{1}, rpcrdma.ReadRead }},
	{name: "version 1 Configuration", set: func(cfg *rpcrdma.Config) { cfg.Versions, cfg.RFC5666 = []int{1}, rpcrdma.Configuration }},
	{name: "version 2 + rtrext", extended: true, set: func(cfg *rpcrdma.Config) {
		cfg.Versions = []int{2}
		cfg.Extensions = rpcrdma.TransportProperties | rpcrdma.MessageContinuation | rpcrdma.SendBasedPlacement
		cfg.Continuation = rpcrdma.Continuation{MaxCallTransmissions: transmissions, MaxReplyTransmissions: transmissions}
		cfg.Placement.ReceiveBuffer = receiveData
	}},
}

// network is a distance and a speed.
type network struct {
	rtt       time.Duration
	bandwidth int64 // in bytes per second, each way; 0 is unlimited
}

// speed is the bandwidth in words.
func speed(bandwidth int64) string {
	if bandwidth == 0 {
		return "unlimited bandwidth"
	}
	return fmt.Sprintf("%g Gb/s each way", float64(bandwidth)*8/1e9)
}

const gigabits25 = 25_000_000_000 / 8

// distances are round-trip times. The third is 25 miles of fibre: light needs 5 µs for a kilometre,
// so 8 µs for a mile, and 16 µs there and back.
var distances = []time.Duration{10 * time.Microsecond, 100 * time.Microsecond, 25 * 16 * time.Microsecond, time.Millisecond}

var bandwidths = []int64{0, gigabits25}

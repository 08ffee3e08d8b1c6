package sluicectl

import (
	"errors"
	"fmt"
	"strings"

	"sluice.dev/sluice/internal/names"
	"sluice.dev/sluice/pkg/rpcrdma"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// dialects name the sources of version 2 of RPC-over-RDMA; docs/protocol-v2.md and
// docs/protocol-v2-wg.md specify it.
var dialects = map[wire.Dialect]string{
	wire.V2RoundTrip:    "draft-cel-nfsv4-rpcrdma-version-two-05, draft-dnoveck-nfsv4-rpcrdma-rtrext-03",
	wire.V2WorkingGroup: "draft-ietf-nfsv4-rpcrdma-version-two (WorkingGroup)",
}

// versions says which versions of RPC-over-RDMA to offer, and which extensions of version 2.
func (o *options) versions() (list []int, set rpcrdma.Extensions, err error) {
	switch o.version {
	case "auto":
		list = []int{wire.Version1, wire.Version2}
	case "1":
		list = []int{wire.Version1}
	case "2":
		list = []int{wire.Version2}
	default:
		return nil, 0, fmt.Errorf("--rpc-version is %q, must be auto, 1 or 2", o.version)
	}
	switch o.ext {
	case "all":
		return list, names.AllExtensions(), nil
	case "none":
		return list, 0, nil
	}
	for name := range strings.SplitSeq(o.ext, ",") {
		x, err := names.ParseExtension(strings.TrimSpace(name))
		if err != nil {
			return nil, 0, fmt.Errorf("--ext: %w, or none or all", err)
		}
		set |= x
	}
	if set&^rpcrdma.TransportProperties != 0 && set&rpcrdma.TransportProperties == 0 {
		return nil, 0, fmt.Errorf("--ext: %s needs TransportProperties", names.OfExtensions(set)[0])
	}
	return list, set, nil
}

// oldForms says which forms of RFC 5666 to use. They are of version 1 alone.
func (o *options) oldForms(cfg *rpcrdma.Config) error {
	if o.rfc5666 == "" {
		return nil
	}
	for name := range strings.SplitSeq(o.rfc5666, ",") {
		x, err := names.ParseRFC5666(strings.TrimSpace(name))
		if err != nil {
			return fmt.Errorf("--rfc5666: %w", err)
		}
		cfg.RFC5666 |= x
	}
	if o.version == "2" {
		return fmt.Errorf("--rfc5666 is %s, which version 2 has not: want --rpc-version 1", o.rfc5666)
	}
	cfg.Versions = []int{wire.Version1}
	return nil
}

// mismatch returns the advice for an error about versions, "" for other errors.
func mismatch(err error) string {
	var remote *rpcrdma.RemoteError
	if !errors.As(err, &remote) || remote.Code != wire.ErrVers {
		return ""
	}
	has := fmt.Sprintf("version %d", remote.Low)
	if remote.High != remote.Low {
		has = fmt.Sprintf("versions %d to %d", remote.Low, remote.High)
	}
	return "the server has " + has + " of RPC-over-RDMA; --rpc-version says which to speak"
}

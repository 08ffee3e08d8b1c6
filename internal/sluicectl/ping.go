package sluicectl

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

func (a *app) pingCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "ping URL",
		Short: "Make one NULL call, and print the negotiated parameters",
		Args:  exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			t, err := parseTarget(args[0])
			if err != nil {
				return err
			}
			return a.ping(c.Context(), t, asJSON)
		},
	}
	a.connectionFlags(c)
	c.ValidArgsFunction = a.completeArgs(false)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func (a *app) ping(ctx context.Context, t *target, asJSON bool) error {
	began := time.Now()
	s, err := a.dial(ctx, t, false)
	if err != nil {
		return err
	}
	defer s.close()
	connected := time.Now()
	short, cancel := s.patience(ctx)
	defer cancel()
	if err := s.chooseNFS(short); err != nil {
		return cannot(err, "ping %s", t)
	}
	asked := time.Now()
	if err := s.Null(short); err != nil {
		return cannot(err, "ping %s", t)
	}
	r := s.negotiated()
	r.RoundTripUS = float64(time.Since(asked).Nanoseconds()) / 1e3
	r.ConnectUS = float64(connected.Sub(began).Nanoseconds()) / 1e3
	if asJSON {
		return a.printJSON(r)
	}
	r.print(a)
	return nil
}

func (r *pingResult) print(a *app) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(a.Out, "  %-20s %s\n", name, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(a.Out, "%s answers NFS version %s\n", r.URL, r.NFS)
	connect := ""
	if r.ConnectUS > 0 {
		connect = fmt.Sprintf(" (and %.0f µs to connect)", r.ConnectUS)
	}
	line("round trip", "%.0f µs%s", r.RoundTripUS, connect)
	if r.Transport == "tcp" {
		line("transport", "TCP")
		return
	}
	device := r.Device
	if device == "" {
		device = "software"
	}
	onOff := map[bool]string{true: "on", false: "off"}
	line("transport", "RPC-over-RDMA version %d", r.Version)
	if r.Version == wire.Version2 {
		line("dialect", "%s", r.Dialect)
		extensions := strings.Join(r.Extensions, ", ")
		if extensions == "" {
			extensions = "none"
		}
		line("extensions", "%s", extensions)
		line("receives", "of %d bytes at the server, of %d here", r.Server.ReceiveSize, r.Client.ReceiveSize)
		if r.Server.Placement > 0 || r.Client.Placement > 0 {
			line("of these for data", "%d bytes at the server, %d here", r.Server.Placement, r.Client.Placement)
		}
		line("transmissions", "%d at most for a call, %d for a reply", r.CallTransmissions, r.ReplyTransmissions)
		line("reverse calls", "%s at the server, %s here", strings.ToLower(r.Server.Backward), strings.ToLower(r.Client.Backward))
	}
	line("provider", "%s (%s)", r.Provider, device)
	line("inline thresholds", "%d bytes for calls, %d for replies", r.InlineCall, r.InlineReply)
	if r.Configured {
		line("configuration", "by the Connection Configuration Protocol")
	}
	if r.Padding > 0 {
		line("padding", "data of calls at multiples of %d bytes", r.Padding)
	}
	if r.ReadRead {
		line("long replies", "exposed by the server, if it can, and read (Read-Read)")
	}
	line("credits", "%d granted, %d asked for", r.Granted, r.Requested)
	line("RDMA Reads", "%d at once from the server (IRD), %d from here (ORD)", r.IRD, r.ORD)
	line("CRC32C", "%s", onOff[r.CRC])
	if r.windowless {
		line("remote invalidation", "off: the device has no memory windows of type 2, or not the longer queue that they need, so that a region is registered for each call")
		return
	}
	line("remote invalidation", "%s", onOff[r.RemoteInv])
}

package sluicectl

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"sluice.dev/sluice/internal/doctor"
	"sluice.dev/sluice/pkg/rdma/verbs"
)

func (a *app) doctorCommand() *cobra.Command {
	var server string
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Find faults that keep RDMA adapters from working on this host, and their remedies",
		Args:  exactly(0),
		RunE: func(c *cobra.Command, args []string) error {
			if server != "" {
				return a.examineClient(c.Context(), server)
			}
			return a.examineHost()
		},
	}
	a.deviceFlag(c)
	a.timeoutFlag(c)
	c.Flags().StringVar(&server, "client", "", "look at this host as a client of `ADDR`, a gateway's host or host:port, for mounts by the kernel")
	return c
}

// errUnwell ends a doctor that found a problem.
var errUnwell = errors.New("the problems above keep RDMA from working")

func (a *app) examineHost() error {
	h := doctor.ReadHost()
	w := doctor.Wanted{Device: a.opts.device}
	if _, err := verbs.New(verbs.Config{}); errors.Is(err, verbs.ErrNotBuilt) {
		fmt.Fprintln(a.Out, "this sluicectl was built without rdma-core: limits of devices are not shown, and --provider verbs is not there")
	}
	found, err := verbs.Find(verbs.Sources{Name: a.opts.device, Environ: os.Environ(), Sys: os.DirFS("/sys")})
	if err == nil && found.Device != "" {
		w.Device = found.Device
		a.fact("chosen", "%s, by %s", found.Device, found.By)
	}
	a.devices(h)
	problems := h.Check(w)
	if err != nil && len(problems) == 0 { // the environment is not the plugin's
		problems = []doctor.Problem{{Reason: doctor.DeviceNotUsable, Message: strings.TrimPrefix(err.Error(), "verbs: ")}}
	}
	return a.verdict(problems, h.Notes(w))
}

func (a *app) examineClient(ctx context.Context, server string) error {
	if _, _, err := net.SplitHostPort(server); err != nil {
		server = net.JoinHostPort(strings.Trim(server, "[]"), defaultRDMAPort)
	}
	ctx, cancel := context.WithTimeout(ctx, a.opts.timeout)
	defer cancel()
	c, err := doctor.ReadClient(ctx, server)
	if err != nil {
		return cannot(err, "look for %s", server)
	}
	for _, m := range c.Modules {
		is := "is not there"
		if m.Loaded {
			is = "is loaded"
		} else if m.Installed {
			is = "can be loaded"
		}
		a.fact("module", "%s %s", m.Name, is)
	}
	if c.NoRoute == nil {
		a.fact("route", "to %s by %s, from %s", c.Server.Addr(), c.Interface, c.From)
	}
	if d := c.Device(); d != nil {
		a.fact("link", "%s (%s)", d.Name, d.Transport())
		for _, p := range d.Ports {
			if p.MTU > 0 && p.State == "ACTIVE" {
				a.fact("mtu", "%d on port %d: the gateway's port needs the same (activeMTU in its /status)", p.MTU, p.Number)
			}
		}
		if !d.IWARP {
			a.fact("port", "%d is one of %s: a TCP connection does not show it", c.Server.Port(), d.Transport())
		}
	}
	if c.Dial == nil {
		a.fact("port", "%s answers on TCP", c.Server)
	}
	return a.verdict(c.Check(), c.Notes())
}

func (a *app) fact(name, format string, args ...any) {
	fmt.Fprintf(a.Out, "  %-10s %s\n", name, fmt.Sprintf(format, args...))
}

func (a *app) devices(h *doctor.Host) {
	for i := range h.Devices {
		d := &h.Devices[i]
		a.fact("device", "%s, %s, node GUID %s, /dev/infiniband/%s", d.Name, d.Transport(), d.GUID, d.Verbs)
		for _, p := range d.Ports {
			words := []string{p.State}
			if p.MTU > 0 {
				words = append(words, fmt.Sprintf("MTU %d", p.MTU))
			}
			if len(p.PKeys) > 0 {
				words = append(words, "partition keys "+keys(p.PKeys))
			}
			a.fact("", "port %d %s", p.Number, strings.Join(words, ", "))
			for _, g := range p.GIDs {
				words := []string{g.Address.String()}
				for _, w := range []string{g.Type, g.Interface} {
					if w != "" {
						words = append(words, w)
					}
				}
				a.fact("", "GID %d %s", g.Index, strings.Join(words, ", "))
			}
		}
		if l, err := verbs.Query(d.Name); err == nil {
			a.fact("", "at most %d connections, %d requests in a queue, %d segments (%d of a Read), %d Reads from the peer and %d to it, messages of %s",
				l.Connections, l.Queue, l.Segments, l.ReadSegments, l.IRD, l.ORD, byteSize(int64(l.Message)))
			windows := "no memory windows of type 2: a client here registers a region for each call, and offers no remote invalidation"
			if l.Windows > 0 {
				windows = fmt.Sprintf("%d memory windows of type 2: a client here offers remote invalidation, unless the device refuses the longer queue that they need (see ping)", l.Windows)
			}
			a.fact("", "at most %d regions, and %s", l.Regions, windows)
		}
	}
	limit := "as much memory as it likes"
	if h.MemLock != doctor.Unlimited {
		limit = byteSize(int64(h.MemLock)) + " of memory"
	}
	if h.IPCLock {
		limit += " (with the capability IPC_LOCK the limit does not count)"
	}
	a.fact("memlock", "this process may lock %s", limit)
	mode := map[bool]string{true: "exclusive: each in one network namespace", false: "shared: in all network namespaces"}
	a.fact("namespaces", "RDMA devices are %s", mode[h.Exclusive])
}

func keys(all []uint16) string {
	var list []string
	for _, k := range all {
		list = append(list, fmt.Sprintf("%#04x", k))
	}
	return strings.Join(list, " ")
}

// verdict prints the notes and the problems, those with a reason as the messages of conditions.
func (a *app) verdict(problems []doctor.Problem, notes []string) error {
	for _, n := range notes {
		fmt.Fprintf(a.Out, "* %s\n", n)
	}
	if len(problems) == 0 {
		fmt.Fprintln(a.Out, "nothing is in the way")
		return nil
	}
	for _, p := range problems {
		anchor := ""
		if p.Reason != "" {
			anchor = " (sluicectl explain " + p.Reason + ")"
		}
		fmt.Fprintf(a.Out, "! %s%s\n", p.Message, anchor)
	}
	return errUnwell
}

package sluicectl

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sluice.dev/sluice/internal/names"
	"sluice.dev/sluice/pkg/nfs/client"
)

// Groups of flags, in the order of help. Flags without one belong to a command alone.
const (
	groupAnnotation = "group"
	connectionGroup = "Connection flags"
	transportGroup  = "Transport flags"
)

// columns is the width of help.
const columns = 100

// ungrouped is the heading of a command's own flags.
const ungrouped = "Flags"

// connectionFlags adds the flags of all commands that connect to a server.
func (a *app) connectionFlags(c *cobra.Command) {
	a.deviceFlag(c)
	a.timeoutFlag(c)
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.StringVar(&a.opts.provider, "provider", "auto", "RDMA: by iwarp (software), verbs (an RDMA device of this host), or auto (verbs where a device is on the way)")
	f.StringVar(&a.opts.nfs, "nfs", automatic, "version of NFS: 3, 4.2, or auto (4.2 if the server has it, else 3)")
	addGroup(c, f, connectionGroup)
	complete(c, "provider", "auto", "iwarp", "verbs")
	complete(c, "nfs", automatic, client.V3.String(), client.V42.String())

	addGroup(c, a.transportFlags(), transportGroup)
	complete(c, "crc", "on", "off")
	complete(c, "rpc-version", "auto", "1", "2")
	complete(c, "ext", append([]string{"all", "none"}, names.OfExtensions(names.AllExtensions())...)...)
	complete(c, "dialect", names.Dialects()...)
	complete(c, "rfc5666", names.OfRFC5666(names.AllRFC5666())...)
	complete(c, "results", automatic, "TBSN", "EXRW", "CHOICE", "BYSIZE")
	complete(c, "fpdu", "largest", "segment")
}

// reconnectFlag adds the flag of commands that survive their connection.
func (a *app) reconnectFlag(c *cobra.Command) {
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.DurationVar(&a.opts.reconnect, "reconnect", 2*time.Minute, "how long to wait for a server that went away before giving up; 0 ends the command with its connection")
	addGroup(c, f, connectionGroup)
}

func (a *app) timeoutFlag(c *cobra.Command) {
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.DurationVar(&a.opts.timeout, "timeout", 10*time.Second, "how long to wait for the connection and for each answer that is not data")
	addGroup(c, f, connectionGroup)
}

func (a *app) deviceFlag(c *cobra.Command) {
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.StringVar(&a.opts.device, "device", "", "RDMA: the device of this host to use, such as mlx5_4")
	addGroup(c, f, connectionGroup)
}

// transportFlags are for tests and measurements.
func (a *app) transportFlags() *pflag.FlagSet {
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.StringVar(&a.opts.crc, "crc", "on", "protect iWARP connections by CRC32C: on, or off (the server may insist)")
	f.IntVar(&a.opts.inline, "inline", 4096, "RDMA: largest message without chunks, in bytes, a multiple of 1024 up to 262144")
	f.IntVar(&a.opts.credits, "credits", 128, "RDMA: how many calls to ask the server to allow at once, 1 to 4096")
	f.StringVar(&a.opts.version, "rpc-version", "auto", "RDMA: version of RPC-over-RDMA: 1, 2, or auto (2 if the server has it, else 1)")
	f.StringVar(&a.opts.ext, "ext", "all", "RDMA: extensions of version 2 to offer: all, none, or names with commas between them")
	f.StringVar(&a.opts.dialect, "dialect", "RoundTrip", "RDMA: dialect of version 2: RoundTrip, or WorkingGroup, which has no extensions")
	f.StringVar(&a.opts.rfc5666, "rfc5666", "", "RDMA: forms of version 1 that only RFC 5666 has, with commas between them: Padding, ReadRead, Configuration; implies --rpc-version 1")
	a.opts.placementFlags(f)
	f.StringVar(&a.opts.fpdu, "fpdu", "largest", "iWARP: size of the FPDUs sent: largest (64 KiB), segment (one TCP segment), or bytes from 256 to 65535")
	f.DurationVar(&a.opts.spin, "spin", 0, "iWARP and TCP: how long to ask for the next answer before sleeping, up to 1ms; takes a processor while calls are made")
	return f
}

func addGroup(c *cobra.Command, f *pflag.FlagSet, group string) {
	f.VisitAll(func(x *pflag.Flag) { x.Annotations = map[string][]string{groupAnnotation: {group}} })
	c.Flags().AddFlagSet(f)
}

// complete gives the shell the values of a flag.
func complete(c *cobra.Command, flag string, values ...string) {
	_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// transportTopic is the help on the flags that the other helps leave out.
func (a *app) transportTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "transport",
		Short: "Flags for tests and measurements, of all commands that connect",
		Long: "All commands that take a URL also take these flags, for tests and measurements.\n" +
			"They have no effect on connections of another kind.\n\n" + transportGroup + ":\n" + a.transportFlags().FlagUsagesWrapped(columns),
	}
}

// usage prints the second part of a command's help: flags by group, commands by group.
func usage(c *cobra.Command) error {
	w := c.OutOrStderr()
	if c.Runnable() && c.HasParent() {
		fmt.Fprintf(w, "Usage:\n  %s\n", c.UseLine())
	} else if c.HasAvailableSubCommands() {
		fmt.Fprintf(w, "Usage:\n  %s COMMAND\n", c.CommandPath())
	}
	if c.Example != "" {
		fmt.Fprintf(w, "\nExamples:\n%s\n", c.Example)
	}
	for _, g := range c.Groups() {
		usageCommands(w, g.Title, c, func(x *cobra.Command) bool { return x.GroupID == g.ID && x.IsAvailableCommand() })
	}
	usageCommands(w, "Further commands", c, func(x *cobra.Command) bool { return x.GroupID == "" && x.IsAvailableCommand() })
	usageCommands(w, "Further help", c, (*cobra.Command).IsAdditionalHelpTopicCommand)
	transport := usageFlags(w, c)
	switch {
	case transport:
		fmt.Fprintf(w, "\n\"%s help transport\" lists the %s, for tests and measurements.\n", c.Root().Name(), strings.ToLower(transportGroup))
	case c.HasAvailableSubCommands():
		fmt.Fprintf(w, "\n\"%s COMMAND --help\" says more about a command.\n", c.CommandPath())
	}
	return nil
}

func usageCommands(w io.Writer, title string, c *cobra.Command, in func(*cobra.Command) bool) {
	for _, x := range c.Commands() {
		if !in(x) {
			continue
		}
		if title != "" {
			fmt.Fprintf(w, "\n%s:\n", title)
			title = ""
		}
		fmt.Fprintf(w, "  %-*s %s\n", x.NamePadding(), x.Name(), x.Short)
	}
}

// usageFlags prints a command's flags, and reports whether it left out those for the transport.
func usageFlags(w io.Writer, c *cobra.Command) (transport bool) {
	sets := map[string]*pflag.FlagSet{}
	c.LocalFlags().VisitAll(func(x *pflag.Flag) {
		group := ungrouped
		if g := x.Annotations[groupAnnotation]; len(g) > 0 {
			group = g[0]
		}
		set := cmp.Or(sets[group], pflag.NewFlagSet("", pflag.ContinueOnError))
		sets[group] = set
		set.AddFlag(x)
	})
	for _, group := range []string{ungrouped, connectionGroup, transportGroup} {
		set := sets[group]
		if set == nil || !set.HasAvailableFlags() {
			continue
		}
		if group == transportGroup && c.Runnable() {
			return true
		}
		fmt.Fprintf(w, "\n%s:\n%s", group, set.FlagUsagesWrapped(columns))
	}
	return false
}

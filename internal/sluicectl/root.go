// Package sluicectl implements the command sluicectl.
package sluicectl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// output is standard output. It keeps the first error, so that printing needs no check of each
// line.
type output struct {
	w   io.Writer
	err error
}

func (o *output) Write(b []byte) (int, error) {
	n, err := o.w.Write(b)
	if o.err == nil {
		o.err = err
	}
	return n, err
}

// endWithin is the limit for ending an interrupted command. It suffices for cancelling calls, which
// may take 2 s, removing a temporary file and disconnecting.
const endWithin = 4 * time.Second

// Run executes the command line args and returns the exit code.
func Run(ctx context.Context, version string, args []string, s Streams) int {
	return run(ctx, version, args, s, endWithin)
}

func run(ctx context.Context, version string, args []string, s Streams, within time.Duration) int {
	return execute(ctx, func(a *app) *cobra.Command { return a.command(version) }, args, s, within)
}

func execute(ctx context.Context, command func(*app) *cobra.Command, args []string, s Streams, within time.Duration) int {
	out := &output{w: s.Out}
	a := &app{Streams: Streams{s.In, out, s.Err}}
	root := command(a)
	root.SetArgs(args)
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	ended := make(chan error, 1)
	go func() {
		err := root.ExecuteContext(ctx)
		if err == nil && out.err != nil {
			err = cannot(out.err, "print")
		}
		ended <- err
	}()
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		select {
		case err = <-ended:
		case <-time.After(within): // a terminal or pipe ignores ctx
			err = ctx.Err()
		}
	}
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err() // the command may report the call that it gave up
		}
		fmt.Fprintln(s.Err, root.Name()+":", explain(err))
		return 1
	}
	return 0
}

// CommandLine returns the command line, for documentation that is made from it.
func CommandLine(version string) *cobra.Command { return (&app{}).command(version) }

// Groups of commands, in the order of help.
const (
	fileCommands    = "files"
	measureCommands = "measure"
	gatewayCommands = "gateway"
)

func (a *app) command(version string) *cobra.Command {
	root := &cobra.Command{
		Use:               "sluicectl",
		Short:             "Look at, move files through, and measure NFS servers over RPC-over-RDMA and TCP",
		Long:              "sluicectl looks at, moves files through, and measures NFS servers over RPC-over-RDMA and TCP.\n\n" + urlHelp,
		Version:           version,
		Args:              noCommand,
		RunE:              func(c *cobra.Command, _ []string) error { return c.Help() },
		SilenceUsage:      true,
		SilenceErrors:     true,
		DisableAutoGenTag: true,
	}
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.SetUsageFunc(usage)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		if errors.As(err, new(*pflag.NotExistError)) {
			err = fmt.Errorf("%w; %q lists them", err, c.CommandPath()+" --help")
		}
		return err
	})
	root.AddGroup(
		&cobra.Group{ID: fileCommands, Title: "Files"},
		&cobra.Group{ID: measureCommands, Title: "Servers and connections"},
		&cobra.Group{ID: gatewayCommands, Title: "Gateways"},
	)
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
		}
		root.AddCommand(commands...)
	}
	add(fileCommands, a.lsCommand(), a.statCommand(), a.catCommand(), a.getCommand(), a.putCommand(), a.cpCommand(), a.syncCommand(),
		a.rmCommand(), a.mkdirCommand(), a.mvCommand(), a.lnCommand(), a.duCommand(), a.dfCommand())
	add(measureCommands, a.pingCommand(), a.infoCommand(), a.benchCommand(), a.doctorCommand())
	add(gatewayCommands, a.topCommand(), a.clientsCommand(), a.expelCommand(), a.explainCommand(), a.pvCommand())
	root.AddCommand(a.transportTopic(), a.versionCommand(version))
	return root
}

// versionCommand prints the same as --version.
func (a *app) versionCommand(version string) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  exactly(0),
		Run:   func(c *cobra.Command, _ []string) { fmt.Fprintln(a.Out, c.Root().DisplayName(), version) },
	}
}

// Package sluicectl implements the command sluicectl.
package sluicectl

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"
)

// Streams are a command's standard files.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// app is the state shared by all commands.
type app struct {
	Streams
	opts options

	mu  sync.Mutex // guards Err while a session is open, and bar
	bar bool       // the terminal's last line is a progress bar
}

// note prints a line about an event on standard error.
func (a *app) note(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.clearLocked()
	fmt.Fprintf(a.Err, "sluicectl: "+format+"\n", args...)
}

// clearLocked removes the progress bar.
func (a *app) clearLocked() {
	if a.bar {
		fmt.Fprint(a.Err, "\r\x1b[K")
		a.bar = false
	}
}

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
	out := &output{w: s.Out}
	a := &app{Streams: Streams{s.In, out, s.Err}}
	root := a.command(version)
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
		fmt.Fprintln(s.Err, "sluicectl:", explain(err))
		return 1
	}
	return 0
}

func (a *app) command(version string) *cobra.Command {
	root := &cobra.Command{
		Use:           "sluicectl",
		Short:         "Look at, move files through, and measure NFS servers over RPC-over-RDMA and TCP",
		Long:          "sluicectl looks at, moves files through, and measures NFS servers over RPC-over-RDMA and TCP.\n\n" + urlHelp,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	f := root.PersistentFlags()
	f.StringVar(&a.opts.provider, "provider", "auto", "RDMA: by iwarp (software), verbs (an RDMA device of this host), or auto (verbs where a device is on the way)")
	f.StringVar(&a.opts.device, "device", "", "RDMA: the device of this host to use, such as mlx5_4")
	f.StringVar(&a.opts.crc, "crc", "on", "protect iWARP connections by CRC32C: on, or off (the server may insist)")
	f.IntVar(&a.opts.inline, "inline", 4096, "RDMA: largest message without chunks, in bytes, a multiple of 1024 up to 262144")
	f.IntVar(&a.opts.credits, "credits", 128, "RDMA: how many calls to ask the server to allow at once, 1 to 4096")
	f.StringVar(&a.opts.version, "version", "auto", "RDMA: version of RPC-over-RDMA: 1, 2, or auto (2 if the server has it, else 1)")
	f.StringVar(&a.opts.ext, "ext", "all", "RDMA: extensions of version 2 to offer: all, none, or names with commas between them")
	f.StringVar(&a.opts.rfc5666, "rfc5666", "", "RDMA: forms of version 1 that only RFC 5666 has, with commas between them: Padding, ReadRead, Configuration; implies --version 1")
	a.opts.placementFlags(root)
	f.StringVar(&a.opts.fpdu, "fpdu", "largest", "iWARP: size of the FPDUs sent: largest (64 KiB), segment (one TCP segment), or bytes from 256 to 65535")
	f.DurationVar(&a.opts.spin, "spin", 0, "iWARP and TCP: how long to ask for the next answer before sleeping, up to 1ms; takes a processor while calls are made")
	f.DurationVar(&a.opts.timeout, "timeout", 10*time.Second, "how long to wait for the connection and for each answer that is not data")
	f.DurationVar(&a.opts.reconnect, "reconnect", 2*time.Minute, "how long to wait for a server that went away before giving up; 0 ends the command with its connection")
	root.AddCommand(a.pingCommand(), a.lsCommand(), a.statCommand(), a.catCommand(), a.getCommand(), a.putCommand(), a.benchCommand(), a.doctorCommand(), a.pvCommand(), a.clientsCommand(), a.expelCommand(), a.versionCommand(version))
	return root
}

// versionCommand replaces cobra's --version, a flag with another meaning here.
func (a *app) versionCommand(version string) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of sluicectl",
		Args:  cobra.NoArgs,
		Run:   func(*cobra.Command, []string) { fmt.Fprintln(a.Out, "sluicectl", version) },
	}
}

package clienthost

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/internal/telemetry"
)

// interval is the time between two looks at the node.
const interval = 10 * time.Second

// options are the parsed flags.
type options struct {
	want           link
	modules, state string
	check          bool
	format         telemetry.LogFormat
}

// Main runs the subcommand client-host and returns its exit code. A signal ends it.
func Main(args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "operator client-host: %v\n", err)
		return 2
	case o.check:
		return check(o.state, stdout)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var name unix.Utsname
	if err := errors.Join(unix.Uname(&name), os.MkdirAll(o.state, 0o755)); err != nil {
		fmt.Fprintf(stderr, "operator client-host: %v\n", err)
		return 1
	}
	h := &host{
		want:    o.want,
		modules: &modules{dir: o.modules, sys: "/sys", release: unix.ByteSliceToString(name.Release[:]), insert: insert},
		network: kernel{},
		state:   o.state,
		log:     slog.New(o.format.Handler(stderr, slog.LevelInfo)),
	}
	h.run(ctx)
	return 0
}

var linkName = regexp.MustCompile(`^[a-zA-Z][-_a-zA-Z0-9]{0,62}$`)

func parse(args []string, stderr io.Writer) (o options, err error) {
	f := flag.NewFlagSet("client-host", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.want.kind, "link-type", "", "RDMA device to make: siw, rxe; left out, none")
	f.StringVar(&o.want.name, "link-name", "", "name of the RDMA device; left out, siw0 or rxe0")
	f.StringVar(&o.want.netdev, "interface", "", "network interface of the RDMA device; left out, that of the default route")
	f.StringVar(&o.modules, "modules", "/lib/modules", "folder of the node's kernel modules")
	f.StringVar(&o.state, "state", "/run/sluice", "folder of the node that a reboot empties")
	f.TextVar(&o.format, "log-format", telemetry.Text, "text or json")
	f.BoolVar(&o.check, "check", false, "print the problem that the running client-host has, and exit; the exit code is 1 if there is one")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.want.kind != "" && kinds[o.want.kind].module == "":
		return o, fmt.Errorf("--link-type %q: want siw or rxe", o.want.kind)
	case o.want.kind == "" && (o.want.name != "" || o.want.netdev != ""):
		return o, errors.New("--link-name and --interface need --link-type")
	case o.want.name != "" && !linkName.MatchString(o.want.name):
		return o, fmt.Errorf("--link-name %q: want a letter, then letters, digits, - and _, at most 63 in all", o.want.name)
	case len(o.want.netdev) >= unix.IFNAMSIZ || strings.ContainsAny(o.want.netdev, "/ \t\n"):
		return o, fmt.Errorf("--interface %q: want the name of an interface, at most %d bytes", o.want.netdev, unix.IFNAMSIZ-1)
	}
	if o.want.kind != "" && o.want.name == "" {
		o.want.name = o.want.kind + "0"
	}
	return o, nil
}

// run keeps the node as wanted until ctx ends.
func (h *host) run(ctx context.Context) {
	_ = os.Remove(problemFile(h.state)) // an earlier pod's
	for last := "none yet"; ctx.Err() == nil; {
		problem := ""
		if err := h.ensure(); err != nil {
			problem = strings.ReplaceAll(err.Error(), "\n", "; ")
		}
		if problem != last {
			if problem == "" {
				h.log.Info("client host ready")
			} else {
				h.log.Error("client host not ready", "problem", problem)
			}
			if err := writeFile(problemFile(h.state), problem); err != nil {
				h.log.Error("status not written", "error", err)
			}
			last = problem
		}
		select {
		case <-ctx.Done():
		case <-time.After(interval):
		}
	}
	_ = os.Remove(problemFile(h.state))
	if err := h.release(); err != nil {
		h.log.Warn("RDMA device not removed", "reason", err)
	}
}

// problemFile holds the problem of the running program, and is empty if there is none.
func problemFile(state string) string { return filepath.Join(state, "problem") }

func check(state string, stdout io.Writer) int {
	problem, err := os.ReadFile(problemFile(state))
	switch {
	case err != nil:
		fmt.Fprintln(stdout, "client-host has not finished its first look at the node")
		return 1
	case len(problem) > 0:
		fmt.Fprintln(stdout, string(problem))
		return 1
	}
	return 0
}

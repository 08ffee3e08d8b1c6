package gateway

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	config "sluice.dev/sluice/api/config/v1alpha1"
	"sluice.dev/sluice/internal/adminport"
	"sluice.dev/sluice/pkg/oncrpc"
)

// Exit codes of Main.
const (
	exitOK    = 0
	exitError = 1 // failed to start or to end well, or --check-config found problems
	exitUsage = 2
	exitKill  = 130 // a second signal
)

const usage = `Sluice gateway: serves directories and NFS servers to NFS clients over RPC-over-RDMA and TCP.

  gateway --config FILE          serve the exports of FILE, and follow its changes
  gateway --volume DIR           export DIR as "/" to clients on this host
  gateway --nfs HOST:/PATH       export /PATH of the NFS server HOST to clients on this host

`

// Main is the gateway's command line. It returns the exit code.
func Main(args []string, version string, stdout, stderr io.Writer) int {
	return new(cli).main(args, version, stdout, stderr)
}

func (c *cli) main(args []string, version string, stdout, stderr io.Writer) int {
	code, done := c.parse(args, version, stdout, stderr)
	if done {
		return code
	}
	if err := c.run(version, stdout, stderr); err != nil {
		fmt.Fprintln(stderr, "gateway:", err)
		return exitError
	}
	return exitOK
}

// cli has the flags.
type cli struct {
	file                string
	volume              string
	nfs                 string
	nfsMountPort        int
	rdma, tcp, admin    string
	host                netip.Addr
	adminHosts          adminport.Hosts
	linger              time.Duration
	allow, squash       string
	readOnly            bool
	stateDir            string
	logLevel            string
	check, show, pprofs bool

	config   *config.GatewayConfig               // made of the flags
	decorate func(oncrpc.Handler) oncrpc.Handler // for tests
}

func (c *cli) flags(stderr io.Writer) *flag.FlagSet {
	f := flag.NewFlagSet("gateway", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&c.file, "config", "", "configuration `FILE`; reloaded after changes and on SIGHUP")
	f.BoolVar(&c.check, "check-config", false, "print the problems of the configuration file, and exit")
	f.StringVar(&c.volume, "volume", "", "export the directory `DIR`, without --config")
	f.StringVar(&c.nfs, "nfs", "", "export `HOST[:PORT]:/PATH` of an NFS server on TCP, without --config; the default port is 2049")
	f.IntVar(&c.nfsMountPort, "nfs-mount-port", 0, "`PORT` of MOUNT on that server; the default is the one of its rpcbind")
	f.StringVar(&c.rdma, "rdma", "127.0.0.1:20049", "`ADDRESS` for RPC-over-RDMA on software iWARP; empty for none")
	f.StringVar(&c.tcp, "tcp", "127.0.0.1:2049", "`ADDRESS` for RPC on TCP; empty for none")
	f.StringVar(&c.admin, "admin", "127.0.0.1:9180", "`ADDRESS` for /status, /metrics and probes; empty for none")
	f.TextVar(&c.host, "host", netip.Addr{}, "`IP` for addresses without a host, here and in the file; the default is all addresses")
	f.Var(&c.adminHosts, "admin-hosts", "`IPS`, separated by commas, for an admin address without a host; only their interfaces reach the page")
	f.DurationVar(&c.linger, "linger", 0, "`TIME` to stay after the drain, so that reconnecting clients are refused at once")
	f.StringVar(&c.allow, "allow", "127.0.0.0/8,::1/128", "client `NETWORKS` with access, separated by commas")
	f.BoolVar(&c.readOnly, "read-only", false, "make the export read-only")
	f.StringVar(&c.squash, "squash", "None", "`USERS` to map to nobody: None, Root or All")
	f.StringVar(&c.stateDir, "state-dir", defaultStateDir(), "`DIR` for state that survives a restart, such as the key of file handles")
	f.StringVar(&c.logLevel, "log-level", "info", "log `LEVEL`: debug, info, warn or error")
	f.BoolVar(&c.pprofs, "pprof", false, "serve profiles on the admin page, which must be on loopback")
	f.BoolVar(&c.show, "version", false, "print the version, and exit")
	f.Usage = func() {
		fmt.Fprint(stderr, usage)
		f.VisitAll(func(f *flag.Flag) {
			name, text := flag.UnquoteUsage(f)
			left := "--" + f.Name
			if name != "" {
				left += " " + name
			}
			if f.DefValue != "" && f.DefValue != "false" {
				text += " (" + f.DefValue + ")"
			}
			fmt.Fprintf(stderr, "  %-22s %s\n", left, text)
		})
	}
	return f
}

// parse reads the flags. With done, the process ends with code.
func (c *cli) parse(args []string, version string, stdout, stderr io.Writer) (code int, done bool) {
	f := c.flags(stderr)
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		return exitOK, true
	} else if err != nil {
		return exitUsage, true
	}
	refuse := func(format string, a ...any) (int, bool) {
		fmt.Fprintf(stderr, "gateway: "+format+"\nSee gateway --help.\n", a...)
		return exitUsage, true
	}
	if c.show {
		fmt.Fprintln(stdout, "Sluice gateway", version, runtime.Version())
		return exitOK, true
	}
	if f.NArg() > 0 {
		return refuse("%q: unexpected argument: want --volume DIR, --nfs HOST:/PATH or --config FILE", f.Arg(0))
	}
	var sources []string
	for _, s := range []struct{ flag, value string }{{"--volume", c.volume}, {"--nfs", c.nfs}, {"--config", c.file}} {
		if s.value != "" {
			sources = append(sources, s.flag)
		}
	}
	set := map[string]bool{}
	f.Visit(func(f *flag.Flag) { set[f.Name] = true })
	switch {
	case len(sources) == 0:
		return refuse("nothing to export: want --volume DIR, --nfs HOST:/PATH or --config FILE")
	case len(sources) > 1:
		return refuse("%s exclude each other: want one of them", strings.Join(sources, " and "))
	case c.check && c.file == "":
		return refuse("--check-config needs --config FILE")
	case c.volume != "" && set["nfs-mount-port"]:
		return refuse("--nfs-mount-port needs --nfs")
	}
	if c.linger < 0 {
		return refuse("--linger %v: want a duration such as 5s, or 0s", c.linger)
	}
	if c.file != "" {
		for _, name := range []string{"nfs-mount-port", "rdma", "tcp", "admin", "allow", "read-only", "squash", "state-dir", "log-level"} {
			if set[name] {
				return refuse("--%s needs --volume or --nfs: the configuration file has a field for it", name)
			}
		}
		if c.check {
			return c.checkFile(stdout, stderr), true
		}
		return 0, false
	}
	if err := c.make(); err != nil {
		return refuse("%v", err)
	}
	return 0, false
}

// checkFile prints all problems of the configuration file.
func (c *cli) checkFile(stdout, stderr io.Writer) int {
	f, err := readConfig(c.file)
	if err != nil {
		printProblems(stderr, c.file, err)
		return exitError
	}
	for _, r := range f.Refused {
		printProblems(stderr, c.file, r.Problems)
	}
	if len(f.Refused) > 0 {
		return exitError
	}
	fmt.Fprintf(stdout, "%s is valid: %d exports\n", c.file, len(f.Config.Exports))
	return exitOK
}

// printProblems prints one problem a line, after the name of the file.
func printProblems(w io.Writer, file string, err error) {
	var ps config.Problems
	if !errors.As(err, &ps) {
		fmt.Fprintln(w, "gateway:", err)
		return
	}
	for _, p := range ps {
		fmt.Fprintf(w, "%s: %v\n", file, p)
	}
}

// run serves until a signal.
func (c *cli) run(version string, stdout, stderr io.Writer) error {
	o := Options{Version: version, File: c.file, Config: c.config, Level: new(slog.LevelVar), Profile: c.pprofs, Host: c.host, AdminHosts: c.adminHosts, decorate: c.decorate}
	format := "text"
	if c.file != "" {
		f, err := readConfig(c.file)
		if err != nil {
			printProblems(stderr, c.file, err)
			return errors.New("invalid configuration")
		}
		format = f.Config.Log.Format
	}
	o.Log = slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: o.Level}))
	if format == "json" {
		o.Log = slog.New(slog.NewJSONHandler(stderr, &slog.HandlerOptions{Level: o.Level}))
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)

	g, err := New(o)
	if err != nil {
		return err
	}
	if err := start(g, signals); errors.Is(err, errSignal) {
		o.Log.Info("stopped during the start", "error", err)
		go killAtNext(signals)
		return g.Stop(context.Background())
	} else if err != nil {
		return errors.Join(err, g.Stop(context.Background()))
	}
	if c.file == "" && !g.Status().Ready {
		err := errors.New(g.notReadyReason())
		return errors.Join(err, g.Stop(context.Background()))
	}
	g.announce(stdout)
	watching, stopWatching := context.WithCancel(context.Background())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		g.Watch(watching)
	}()
	for s := range signals {
		if s != syscall.SIGHUP {
			o.Log.Info("draining; a second signal ends the process at once", "signal", s.String(), "timeout", g.drainLimit())
			break
		}
		g.Reload()
	}
	go killAtNext(signals)
	stopWatching()
	<-watched
	err = g.Stop(context.Background())
	time.Sleep(c.linger)
	o.Log.Info("stopped")
	return err
}

// errSignal is the error of a start that a signal ended.
var errSignal = errors.New("stopped by a signal")

// start starts g. A signal ends the wait: a start can take as long as a directory does not answer.
func start(g *Gateway, signals <-chan os.Signal) error {
	done := make(chan error, 1)
	go func() { done <- g.Start() }()
	for {
		select {
		case err := <-done:
			return err
		case s := <-signals:
			if s != syscall.SIGHUP { // the start reads the file anyway
				return fmt.Errorf("%w: %v", errSignal, s)
			}
		}
	}
}

// killAtNext ends the process at the next signal to stop.
func killAtNext(signals <-chan os.Signal) {
	for s := range signals {
		if s != syscall.SIGHUP {
			os.Exit(exitKill)
		}
	}
}

// defaultStateDir returns the default of --state-dir.
func defaultStateDir() string {
	if os.Geteuid() == 0 {
		return "/var/lib/sluice"
	}
	if d := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(d) {
		return filepath.Join(d, "sluice")
	}
	if d, err := os.UserHomeDir(); err == nil {
		return filepath.Join(d, ".local", "state", "sluice")
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("sluice-%d", os.Geteuid()))
}

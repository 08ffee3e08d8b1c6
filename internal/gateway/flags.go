package gateway

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	config "sluice.dev/sluice/api/config/v1alpha1"
	"sluice.dev/sluice/internal/adminport"
	"sluice.dev/sluice/internal/telemetry"
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
	logFormat           telemetry.LogFormat
	traceRatio          float64
	traceEndpoint       string
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
	f.TextVar(&c.logFormat, "log-format", telemetry.Text, "log `FORMAT`: text or json")
	f.Float64Var(&c.traceRatio, "trace-ratio", 0, "`PART` of the calls to trace by OpenTelemetry, 0 to 1")
	f.StringVar(&c.traceEndpoint, "trace-endpoint", "", "base `URL` of the OTLP receiver of traces; the default is OTEL_EXPORTER_OTLP_ENDPOINT")
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

// Flags returns the flags of the command line, for documentation that is made from it.
func Flags() *flag.FlagSet { return new(cli).flags(io.Discard) }

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
		for _, name := range []string{"nfs-mount-port", "rdma", "tcp", "admin", "allow", "read-only", "squash", "state-dir", "log-level", "log-format", "trace-ratio", "trace-endpoint"} {
			if set[name] {
				return refuse("--%s needs --volume or --nfs: the configuration file has a field for it", name)
			}
		}
		return 0, false
	}
	if err := c.make(); err != nil {
		return refuse("%v", err)
	}
	return 0, false
}

// make makes a configuration of the flags.
func (c *cli) make() error {
	e := config.DefaultExport()
	var err error
	if c.nfs != "" {
		e.Name = "nfs"
		e.Backend.NFS, err = c.server()
	} else {
		e.Name, e.Backend.Volume = "volume", config.DefaultVolume("")
		if e.Backend.Volume.Path, err = filepath.Abs(c.volume); err != nil {
			err = fmt.Errorf("--volume %q: %w", c.volume, err)
		}
	}
	if err != nil {
		return err
	}
	if c.stateDir, err = filepath.Abs(c.stateDir); err != nil {
		return fmt.Errorf("--state-dir %q: %w", c.stateDir, err)
	}
	g := config.Default()
	g.APIVersion, g.Kind = config.APIVersion, config.Kind
	g.Admin.Address, g.StateDir = c.admin, c.stateDir
	g.Log = config.Log{Level: c.logLevel, Format: string(c.logFormat)}
	g.Tracing = config.Tracing{Ratio: c.traceRatio, Endpoint: c.traceEndpoint}
	rule := config.AccessRule{Mode: config.ReadWrite, Squash: config.Squash(c.squash)}
	if c.readOnly {
		rule.Mode = config.ReadOnly
	}
	for n := range strings.SplitSeq(c.allow, ",") {
		p, err := netip.ParsePrefix(strings.TrimSpace(n))
		if err != nil {
			return fmt.Errorf("--allow %q: want networks such as 10.0.0.0/8 or fd00::/8, separated by commas", c.allow)
		}
		rule.From.Networks = append(rule.From.Networks, p)
	}
	e.Access = []config.AccessRule{rule}
	var flags []string // flag of each listener
	if c.rdma != "" {
		e.Listeners = append(e.Listeners, config.Listener{Network: config.RDMA, Provider: config.IWARP, Address: c.rdma})
		flags = append(flags, "--rdma")
	}
	if c.tcp != "" {
		e.Listeners = append(e.Listeners, config.Listener{Network: config.TCP, Address: c.tcp})
		flags = append(flags, "--tcp")
	}
	if len(flags) == 0 {
		return errors.New("want an address for --rdma or --tcp")
	}
	e.Complete()
	g.Exports = []config.Export{e}
	if ps := g.Validate(); len(ps) > 0 {
		return flagError(ps[0], flags)
	}
	c.config = &g
	return nil
}

// server parses --nfs.
func (c *cli) server() (*config.NFSServer, error) {
	bad := fmt.Errorf("--nfs %q: want HOST:/PATH or HOST:PORT:/PATH, such as filer.example:/vol/data; IPv6 addresses need brackets: [fd00::1]:/vol/data", c.nfs)
	host, path, ok := strings.Cut(c.nfs, ":/")
	if !ok {
		return nil, bad
	}
	s := config.DefaultNFSServer()
	s.Server, s.Path, s.MountPort = host, "/"+path, c.nfsMountPort
	if inner, ok := strings.CutPrefix(host, "["); ok && strings.HasSuffix(inner, "]") {
		s.Server = strings.TrimSuffix(inner, "]")
	} else if strings.Contains(host, ":") {
		var port string
		var err error
		if s.Server, port, err = net.SplitHostPort(host); err != nil {
			return nil, bad
		}
		if s.Port, err = strconv.Atoi(port); err != nil {
			return nil, bad
		}
	}
	return &s, nil
}

// flagError names the flag of a problem.
func flagError(p config.Problem, listeners []string) error {
	name := p.Field
	for _, f := range []struct{ prefix, flag string }{
		{"admin.", "--admin"}, {"exports[0].access[0].squash", "--squash"}, {"exports[0].access[0].from", "--allow"},
		{"exports[0].backend.volume", "--volume"}, {"exports[0].backend.nfs", "--nfs"}, {"exports[0].backend.nfs.mountPort", "--nfs-mount-port"},
		{"stateDir", "--state-dir"}, {"log.", "--log-level"}, {"tracing.ratio", "--trace-ratio"}, {"tracing.endpoint", "--trace-endpoint"},
	} {
		if strings.HasPrefix(p.Field, f.prefix) {
			name = f.flag
		}
	}
	for i, flag := range listeners {
		if strings.HasPrefix(p.Field, fmt.Sprintf("exports[0].listeners[%d]", i)) {
			name = flag
		}
		p.Reason = strings.ReplaceAll(p.Reason, fmt.Sprintf("exports[0].listeners[%d].address", i), flag)
	}
	p.Field = ""
	return fmt.Errorf("%s: %w", name, p)
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

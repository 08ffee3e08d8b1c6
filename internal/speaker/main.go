package speaker

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"sluice.dev/sluice/internal/adminport"
	"sluice.dev/sluice/internal/speaker/fsm"
	"sluice.dev/sluice/internal/speaker/lease"
	"sluice.dev/sluice/internal/telemetry"
)

// Exit codes of Main.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
)

const usage = `Sluice speaker: decides by Lease which pod carries which virtual IPs, and announces them.

  operator speaker --config FILE

`

// options are the flags.
type options struct {
	file, pod, uid, namespace string
	admin, kubeconfig         string
	adminHosts                adminport.Hosts
	gateway                   string
	logLevel                  slog.Level
	logFormat                 telemetry.LogFormat
	timing                    fsm.Timing
	version                   string
}

// Main is the speaker's command line. It returns the exit code.
func Main(args []string, version string, stdout, stderr io.Writer) int {
	o, code, done := parse(args, version, stdout, stderr)
	if done {
		return code
	}
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	log := slog.New(o.logFormat.Handler(stderr, o.logLevel))
	if err := serve(stop, o, log); err != nil {
		fmt.Fprintln(stderr, "speaker:", err)
		return exitError
	}
	return exitOK
}

func parse(args []string, version string, stdout, stderr io.Writer) (o options, code int, done bool) {
	o.timing, o.version = fsm.Default, version
	f := flag.NewFlagSet("speaker", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.file, "config", "", "`FILE` that names the interface, the Leases and the addresses; it is watched")
	f.StringVar(&o.pod, "pod", os.Getenv("POD_NAME"), "`NAME` of the pod; unsaid, POD_NAME")
	f.StringVar(&o.uid, "pod-uid", os.Getenv("POD_UID"), "`UID` of the pod; unsaid, POD_UID")
	f.StringVar(&o.namespace, "namespace", os.Getenv("POD_NAMESPACE"), "`NAMESPACE` of the pod and the Leases; unsaid, POD_NAMESPACE")
	f.StringVar(&o.admin, "admin", ":9181", "`ADDRESS` for /status, /metrics and probes")
	f.Var(&o.adminHosts, "admin-hosts", "`IPS`, with commas between them, that --admin without an IP stands for; the page is reached by their interfaces alone")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "`FILE` that says how the API server is reached; unsaid, as from within a pod")
	f.StringVar(&o.gateway, "gateway-ready", "", "`URL` of the gateway's readiness page: a pod whose gateway does not serve takes no addresses")
	f.DurationVar(&o.timing.Lease, "lease-duration", o.timing.Lease, "a Lease that is not renewed for so long may be taken by others; renewed after three tenths of it; whole seconds, 3s to 5m")
	f.TextVar(&o.logLevel, "log-level", slog.LevelInfo, "`LEVEL` of logging: debug, info, warn or error")
	f.TextVar(&o.logFormat, "log-format", telemetry.Text, "`FORMAT` of logging: text or json")
	show := f.Bool("version", false, "print the version, and exit")
	f.Usage = func() {
		fmt.Fprint(stderr, usage)
		f.PrintDefaults()
	}
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		return o, exitOK, true
	} else if err != nil {
		return o, exitUsage, true
	}
	if *show {
		fmt.Fprintln(stdout, "Sluice speaker", version)
		return o, exitOK, true
	}
	refuse := func(format string, a ...any) (options, int, bool) {
		fmt.Fprintf(stderr, "speaker: "+format+"\n", a...)
		return o, exitUsage, true
	}
	if f.NArg() > 0 {
		return refuse("%q: want flags alone", f.Arg(0))
	}
	for _, x := range []struct{ name, value string }{{"config", o.file}, {"pod", o.pod}, {"pod-uid", o.uid}, {"namespace", o.namespace}} {
		if x.value == "" {
			return refuse("--%s is missing", x.name)
		}
	}
	if d := o.timing.Lease; d != d.Truncate(time.Second) || d < 3*time.Second || d > 5*time.Minute {
		return refuse("--lease-duration: %v, want whole seconds from 3s to 5m", d)
	}
	o.timing.Renew = o.timing.Lease * 3 / 10
	return o, exitOK, false
}

// serve works until stop ends and everything is given up.
func serve(stop context.Context, o options, log *slog.Logger) error {
	config, err := restConfig(o.kubeconfig)
	if err != nil {
		return fmt.Errorf("how the API server is reached: %w", err)
	}
	leases, err := lease.New(config, o.namespace, o.timing.Lease)
	if err != nil {
		return err
	}
	l, err := adminport.Listen(o.admin, o.adminHosts)
	if err != nil {
		return fmt.Errorf("--admin: %w", err)
	}
	s := newSpeaker(o, log, leases)
	server := adminport.NewServer(adminport.WriteTimeout(s.page()), &adminport.ConnLimit{}, log)
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("the status page ended", "error", err)
		}
	}()
	defer server.Close()
	return s.run(stop)
}

func restConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		return rest.InClusterConfig()
	}
	return clientcmd.BuildConfigFromFlags("", kubeconfig)
}

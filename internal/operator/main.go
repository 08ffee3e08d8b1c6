// Package operator is the program cmd/operator.
package operator

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"sluice.dev/sluice/internal/clienthost"
	"sluice.dev/sluice/internal/operator/controllers"
	"sluice.dev/sluice/internal/operator/provisioner"
	"sluice.dev/sluice/internal/operator/uninstall"
	"sluice.dev/sluice/internal/speaker"
	"sluice.dev/sluice/internal/telemetry"
)

// leaderID is the name of the Lease for leader election.
const leaderID = "sluice-operator"

// settings are the parsed flags.
type settings struct {
	controllers controllers.Options
	manager     manager.Options
	namespaces  []string
	level       slog.Level
	format      telemetry.LogFormat
	version     bool
}

// Main runs the operator, or a subcommand: speaker, check-uninstall or client-host. It returns the
// exit code. A signal ends it.
func Main(args []string, version string, stdout, stderr io.Writer) int {
	if len(args) > 0 {
		switch args[0] {
		case "speaker":
			return speaker.Main(args[1:], version, stdout, stderr)
		case "check-uninstall":
			return uninstall.Main(args[1:], stdout, stderr)
		case "client-host":
			return clienthost.Main(args[1:], stdout, stderr)
		}
	}
	s, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "operator: %v\n", err)
		return 2
	case s.version:
		fmt.Fprintln(stdout, version)
		return 0
	}
	logger := logr.FromSlogHandler(s.format.Handler(stderr, s.level))
	log.SetLogger(logger)
	klog.SetLogger(logger)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	telemetry.RegisterBuildInfo(metrics.Registry, "operator", version)
	if err := run(ctx, s); err != nil {
		fmt.Fprintf(stderr, "operator: %v\n", err)
		return 1
	}
	return 0
}

func run(ctx context.Context, s *settings) error {
	cfg, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	m, err := controllers.New(cfg, s.manager, s.controllers, s.namespaces)
	if err != nil {
		return err
	}
	return m.Start(ctx)
}

func parse(args []string, stderr io.Writer) (*settings, error) {
	s := &settings{}
	d := &s.controllers.Defaults
	f := flag.NewFlagSet("operator", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&d.GatewayImage, "gateway-image", "", "image of gateways with provider SoftwareIWARP (required)")
	f.StringVar(&d.VerbsImage, "verbs-image", "", "image of gateways with provider Verbs; left out, that of the others")
	f.StringVar(&d.SpeakerImage, "operator-image", "", "image of this program, which carries virtual addresses beside gateways (required)")
	f.StringVar(&d.OperatorNamespace, "namespace", os.Getenv("POD_NAMESPACE"), "namespace of the operator; left out, the environment's POD_NAMESPACE")
	operatorLabels := f.String("operator-labels", "app.kubernetes.io/name=sluice,app.kubernetes.io/component=operator", "labels of the operator's pods, which may reach the gateways' admin ports")
	f.Func("collector-labels", "labels of the pods that collect metrics, a=b,c=d; repeated, pods with any of them; left out, app.kubernetes.io/name=prometheus", func(v string) error {
		l, err := labels.ConvertSelectorToLabelsMap(v)
		if err != nil || len(l) == 0 {
			return cmp.Or(err, errors.New("want labels, such as app.kubernetes.io/name=prometheus"))
		}
		d.CollectorLabels = append(d.CollectorLabels, l)
		return nil
	})
	monitoringLabels := f.String("monitoring-labels", "", "labels of all ServiceMonitors and PrometheusRules, such as release=prometheus, which a Prometheus may select them by")
	pullSecrets := f.String("image-pull-secrets", "", "names of Secrets, with commas, in the namespaces of gateways, that their pods pull images with unless spec.podTemplate names others")
	namespaces := f.String("watch-namespaces", "", "namespaces of NFSGateways and NFSExports, with commas; default all. With a list the operator reads neither nodes nor labels of namespaces: from.nodes selects none, and allowedExports can only use the label kubernetes.io/metadata.name")
	f.StringVar(&s.manager.Metrics.BindAddress, "metrics-address", ":8080", "where /metrics is served; 0 for nowhere")
	f.StringVar(&s.manager.HealthProbeBindAddress, "health-address", ":8081", "where /healthz and /readyz are served; 0 for nowhere")
	f.BoolVar(&s.manager.LeaderElection, "leader-elect", true, "let one of several operators act")
	f.TextVar(&s.level, "log-level", slog.LevelInfo, "debug, info, warn or error")
	f.TextVar(&s.format, "log-format", telemetry.Text, "text or json, for this program, and for the pods that it makes")
	addresses := f.String("provisioner", "", "addresses of this pod, with commas. With them, make volumes for claims of StorageClasses with provisioner "+provisioner.Name+": directories of NFSExports, whose rules with from.provisioner admit these addresses")
	f.BoolVar(&s.version, "version", false, "print the version and exit")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if s.version {
		return s, nil
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("%q: want flags alone, or the word speaker, check-uninstall or client-host first", f.Arg(0))
	}
	for name, v := range map[string]string{"gateway-image": d.GatewayImage, "operator-image": d.SpeakerImage, "namespace": d.OperatorNamespace} {
		if v == "" {
			return nil, fmt.Errorf("--%s is wanted", name)
		}
	}
	if d.VerbsImage == "" {
		d.VerbsImage = d.GatewayImage
	}
	var err error
	if d.OperatorLabels, err = labels.ConvertSelectorToLabelsMap(*operatorLabels); err != nil {
		return nil, fmt.Errorf("--operator-labels: %w", err)
	}
	if *monitoringLabels != "" {
		if d.MonitoringLabels, err = labels.ConvertSelectorToLabelsMap(*monitoringLabels); err != nil {
			return nil, fmt.Errorf("--monitoring-labels: %w", err)
		}
	}
	d.LogFormat = string(s.format)
	for _, a := range names(*addresses) {
		ip, err := netip.ParseAddr(a)
		if err != nil {
			return nil, fmt.Errorf("--provisioner: %q: want addresses of this pod, such as 10.244.1.7,fd00::7", a)
		}
		s.controllers.Provisioner = append(s.controllers.Provisioner, ip.Unmap().WithZone(""))
	}
	d.PullSecrets, s.namespaces = names(*pullSecrets), names(*namespaces)
	s.controllers.ClusterScope = len(s.namespaces) == 0
	s.manager.LeaderElectionID, s.manager.LeaderElectionNamespace = leaderID, d.OperatorNamespace
	// A new leader need not wait: nothing runs after this process.
	s.manager.LeaderElectionReleaseOnCancel = true
	return s, nil
}

// names splits a list with commas.
func names(list string) []string {
	var out []string
	for n := range strings.SplitSeq(list, ",") {
		if n = strings.TrimSpace(n); n != "" {
			out = append(out, n)
		}
	}
	return out
}

package uninstall

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Main runs the subcommand check-uninstall. It returns 0 if the operator may be uninstalled.
func Main(args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "operator check-uninstall: %v\n", err)
		return 2
	}
	log.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := connect(ctx, o, stdout); err != nil {
		fmt.Fprintf(stderr, "operator check-uninstall: %v\n", err)
		return 1
	}
	return 0
}

func parse(args []string, stderr io.Writer) (o Options, err error) {
	flags := flag.NewFlagSet("check-uninstall", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.BoolVar(&o.Force, "force", false, "delete all NFSExports and NFSGateways")
	flags.StringVar(&o.Release, "release", "sluice", "the Helm release's name")
	flags.StringVar(&o.Operator.Namespace, "namespace", "", "namespace of the operator")
	flags.StringVar(&o.Operator.Name, "deployment", "", "name of the operator's Deployment; its annotation "+AnnotationForce+"=force is --force")
	namespaces := flags.String("watch-namespaces", "", "namespaces to look at, with commas between them; left out, all")
	flags.DurationVar(&o.Timeout, "timeout", 4*time.Minute, "how long the deletion may take, besides the draining of gateways")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	o.Namespaces = strings.FieldsFunc(*namespaces, func(r rune) bool { return r == ',' })
	o.Poll = time.Second
	return o, nil
}

func connect(ctx context.Context, o Options, out io.Writer) error {
	cfg, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		return err
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	return Run(ctx, c, o, out)
}

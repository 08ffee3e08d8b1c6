package uninstall

import (
	"context"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Command is the operator's subcommand check-uninstall, with its arguments.
func Command(ctx context.Context, args []string, out io.Writer) error {
	var o Options
	flags := flag.NewFlagSet("check-uninstall", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.BoolVar(&o.Force, "force", false, "delete all NFSExports and NFSGateways")
	flags.StringVar(&o.Release, "release", "sluice", "the Helm release's name")
	namespaces := flags.String("watch-namespaces", "", "namespaces to look at, with commas between them; empty: all")
	timeout := flags.Duration("timeout", 4*time.Minute, "how long what is deleted may take to go")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	o.Namespaces = strings.FieldsFunc(*namespaces, func(r rune) bool { return r == ',' })
	o.Poll = time.Second

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
	ctx, cancel := context.WithTimeoutCause(ctx, *timeout, fmt.Errorf("waited %s", *timeout))
	defer cancel()
	return Run(ctx, c, o, out)
}

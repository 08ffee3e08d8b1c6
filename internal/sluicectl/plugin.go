package sluicectl

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// PluginName is the name of sluicectl under which it is the plugin "kubectl sluice".
const PluginName = "kubectl-sluice"

// RunPlugin executes the command line args of "kubectl sluice" and returns the exit code. The
// plugin asks the cluster by running kubectl, so it uses the same configuration and credentials.
func RunPlugin(ctx context.Context, version string, args []string, s Streams) int {
	return execute(ctx, func(a *app) *cobra.Command { return a.plugin(version) }, args, s, endWithin)
}

// kubectl runs kubectl with the flags of the plugin that choose a cluster and a namespace.
type kubectl struct {
	kubeconfig, context, namespace string
}

func (k *kubectl) flags(f *pflag.FlagSet) {
	f.StringVar(&k.kubeconfig, "kubeconfig", "", "`FILE` of kubectl's configuration")
	f.StringVar(&k.context, "context", "", "`NAME` of the context in it")
	f.StringVarP(&k.namespace, "namespace", "n", "", "`NAMESPACE` of the object; unsaid, the context's")
}

func (k *kubectl) command(ctx context.Context, args ...string) *exec.Cmd {
	for _, f := range []struct{ name, value string }{{"kubeconfig", k.kubeconfig}, {"context", k.context}, {"namespace", k.namespace}} {
		if f.value != "" {
			args = append([]string{"--" + f.name + "=" + f.value}, args...)
		}
	}
	return exec.CommandContext(ctx, "kubectl", args...)
}

// maxAnswer bounds the answers of kubectl in memory.
const maxAnswer = 256 << 20

// output runs kubectl, and returns its standard output.
func (k *kubectl) output(ctx context.Context, args ...string) ([]byte, error) {
	cmd := k.command(ctx, args...)
	var trouble bytes.Buffer
	cmd.Stderr = &trouble
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("this plugin runs kubectl: %w", err)
	}
	out, err := io.ReadAll(io.LimitReader(pipe, maxAnswer+1))
	if len(out) > maxAnswer {
		err = fmt.Errorf("the answer has more than %d bytes", maxAnswer)
		_ = cmd.Process.Kill()
	}
	if failed := cmd.Wait(); err == nil && failed != nil {
		err = errors.New(cmp.Or(strings.TrimSpace(trouble.String()), failed.Error()))
	}
	if err != nil {
		return nil, fmt.Errorf("kubectl %s: %w", args[0], err)
	}
	return out, nil
}

func (a *app) plugin(version string) *cobra.Command {
	k := &kubectl{}
	root := &cobra.Command{
		Use:               PluginName,
		Short:             "Look at Sluice's gateways and exports in a cluster",
		Long:              "kubectl sluice looks at Sluice's gateways and exports in a cluster. It runs kubectl to do so.",
		Version:           version,
		Annotations:       map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl sluice"},
		Args:              noCommand,
		RunE:              func(c *cobra.Command, _ []string) error { return c.Help() },
		SilenceUsage:      true,
		SilenceErrors:     true,
		DisableAutoGenTag: true,
	}
	root.SetVersionTemplate("kubectl sluice {{.Version}}\n")
	root.SetUsageFunc(usage)
	root.AddCommand(a.pluginStatus(k), a.pluginMount(k), a.pluginPV(k), a.pluginPing(k), a.pluginTop(k), a.versionCommand(version))
	return root
}

func (a *app) pluginStatus(k *kubectl) *cobra.Command {
	all := false
	c := &cobra.Command{
		Use:   "status",
		Short: "Show gateways and exports, and why one is not ready",
		Args:  exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			args := []string{"get", "nfsgateways.sluice.dev,nfsexports.sluice.dev", "-o", "json"}
			if all {
				args = append(args, "--all-namespaces")
			}
			out, err := k.output(c.Context(), args...)
			if err != nil {
				return err
			}
			return a.printStatus(out)
		},
	}
	k.flags(c.Flags())
	c.Flags().BoolVarP(&all, "all-namespaces", "A", false, "show those of all namespaces")
	c.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
	return c
}

// resource has the fields of gateways and exports that status shows.
type resource struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		GatewayRef struct {
			Name string `json:"name"`
		} `json:"gatewayRef"`
	} `json:"spec"`
	Status struct {
		Pods       string `json:"pods"`
		Address    string `json:"address"`
		Clients    int    `json:"clients"`
		Conditions []struct {
			Type    string `json:"type"`
			Status  string `json:"status"`
			Reason  string `json:"reason"`
			Message string `json:"message"`
		} `json:"conditions"`
	} `json:"status"`
}

func (a *app) printStatus(list []byte) error {
	var objects struct {
		Items []resource `json:"items"`
	}
	if err := json.Unmarshal(list, &objects); err != nil {
		return fmt.Errorf("kubectl's answer is not a list: %w", err)
	}
	if len(objects.Items) == 0 {
		fmt.Fprintln(a.Err, "No gateways and no exports found.")
		return nil
	}
	slices.SortStableFunc(objects.Items, func(a, b resource) int {
		return cmp.Or(cmp.Compare(b.Kind, a.Kind), cmp.Compare(a.Metadata.Namespace, b.Metadata.Namespace), cmp.Compare(a.Metadata.Name, b.Metadata.Name))
	})
	w := tabwriter.NewWriter(a.Out, 0, 8, 2, ' ', 0)
	var notes []string
	kind := ""
	for _, o := range objects.Items {
		if o.Kind != kind {
			if kind != "" {
				fmt.Fprintln(w)
			}
			kind = o.Kind
			if kind == "NFSGateway" {
				fmt.Fprintln(w, "GATEWAY\tREADY\tREASON\tPODS\tCLIENTS")
			} else {
				fmt.Fprintln(w, "EXPORT\tREADY\tREASON\tGATEWAY\tADDRESS\tCLIENTS")
			}
		}
		name := o.Metadata.Namespace + "/" + o.Metadata.Name
		ready, reason := "Unknown", "NoStatus"
		for _, c := range o.Status.Conditions {
			if c.Type == "Ready" {
				ready, reason = c.Status, c.Reason
				if c.Status != "True" {
					notes = append(notes, fmt.Sprintf("%s: %s", name, c.Message))
				}
			}
		}
		if kind == "NFSGateway" {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\n", name, ready, reason, cmp.Or(o.Status.Pods, "-"), o.Status.Clients)
		} else {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\n", name, ready, reason, cmp.Or(o.Spec.GatewayRef.Name, "-"), cmp.Or(o.Status.Address, "-"), o.Status.Clients)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if len(notes) > 0 {
		fmt.Fprintf(a.Out, "\n%s\n", strings.Join(notes, "\n"))
	}
	return nil
}

// export reads an export from the cluster.
func (k *kubectl) export(ctx context.Context, name string) ([]byte, error) {
	return k.output(ctx, "get", "nfsexports.sluice.dev", "-o", "json", "--", name)
}

func (k *kubectl) mountLine(ctx context.Context, name string, tcp bool) (*mountLine, error) {
	manifest, err := k.export(ctx, name)
	if err != nil {
		return nil, err
	}
	x, err := readExport(manifest)
	if err != nil {
		return nil, err
	}
	return x.mountLine(tcp)
}

func (a *app) pluginMount(k *kubectl) *cobra.Command {
	tcp := false
	c := &cobra.Command{
		Use:   "mount EXPORT",
		Short: "Print the command that mounts an export",
		Args:  exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			line, err := k.mountLine(c.Context(), args[0], tcp)
			if err != nil {
				return err
			}
			fmt.Fprintln(a.Out, line)
			return nil
		},
	}
	k.flags(c.Flags())
	c.Flags().BoolVar(&tcp, "tcp", false, "mount over TCP, for hosts without RDMA")
	return c
}

func (a *app) pluginPV(k *kubectl) *cobra.Command {
	var o pvOptions
	c := &cobra.Command{
		Use:   "pv EXPORT",
		Short: "Print a PersistentVolume and its claim for an export",
		Long:  "pv prints a PersistentVolume and a PersistentVolumeClaim for an export:\n\n  kubectl sluice pv data | kubectl apply -f -",
		Args:  exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			manifest, err := k.export(c.Context(), args[0])
			if err != nil {
				return err
			}
			out, err := persistentVolume(manifest, o)
			if err != nil {
				return err
			}
			_, err = a.Out.Write(out)
			return err
		},
	}
	k.flags(c.Flags())
	o.flags(c.Flags(), "claim-namespace")
	return c
}

func (a *app) pluginPing(k *kubectl) *cobra.Command {
	tcp, asJSON := false, false
	c := &cobra.Command{
		Use:   "ping EXPORT",
		Short: "Make one NULL call to an export from this host",
		Long: "ping makes one NULL call to the address of an export, and prints the negotiated parameters. This host has to\n" +
			"reach that address, and the export's access rules have to name it.",
		Args: exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			line, err := k.mountLine(c.Context(), args[0], tcp)
			if err != nil {
				return err
			}
			t, err := line.target(tcp)
			if err != nil {
				return err
			}
			return a.ping(c.Context(), t, asJSON)
		},
	}
	k.flags(c.Flags())
	a.connectionFlags(c)
	c.Flags().BoolVar(&tcp, "tcp", false, "over TCP")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func (a *app) pluginTop(k *kubectl) *cobra.Command {
	var o topOptions
	pod := ""
	c := &cobra.Command{
		Use:   "top GATEWAY",
		Short: "Show the traffic of a gateway's pod, again and again",
		Long: "top shows calls, bytes, latency and credits of the exports and clients of one of a gateway's pods, the busiest\n" +
			"first, by a port that kubectl forwards to its admin page. Ctrl-C ends it.",
		Args: exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			if pod == "" {
				var others int
				var err error
				if pod, others, err = k.pod(c.Context(), args[0]); err != nil {
					return err
				}
				if others > 0 {
					fmt.Fprintf(a.Err, "Pod %s; --pod NAME shows another of the %d.\n", pod, others+1)
				}
			}
			admin, stop, err := k.forward(c.Context(), pod)
			if err != nil {
				return err
			}
			defer stop()
			o.admin = admin
			return a.top(c.Context(), o)
		},
	}
	k.flags(c.Flags())
	a.timeoutFlag(c)
	o.flags(c.Flags(), "") // -n is the namespace
	c.Flags().StringVar(&pod, "pod", "", "`NAME` of the pod; unsaid, the first one that runs")
	return c
}

// Of the operator's objects: the label of a gateway's pods, and the port of their admin pages.
const (
	labelGateway = "sluice.dev/gateway"
	adminPort    = "9180"
)

// pod returns a running pod of a gateway, and the number of others.
func (k *kubectl) pod(ctx context.Context, gateway string) (name string, others int, err error) {
	if !label.MatchString(gateway) {
		return "", 0, fmt.Errorf("%q: want the name of an NFSGateway", gateway)
	}
	out, err := k.output(ctx, "get", "pods", "--selector="+labelGateway+"="+gateway, "--field-selector=status.phase=Running", "-o", "jsonpath={.items[*].metadata.name}")
	if err != nil {
		return "", 0, err
	}
	names := strings.Fields(string(out))
	if len(names) == 0 {
		return "", 0, fmt.Errorf("gateway %q has no running pod in this namespace; \"kubectl sluice status -A\" lists gateways", gateway)
	}
	return names[0], len(names) - 1, nil
}

var forwarding = regexp.MustCompile(`^Forwarding from (127\.0\.0\.1:\d+) -> `)

// forward forwards a port of this host to a pod's admin page until stop is called.
func (k *kubectl) forward(ctx context.Context, pod string) (address string, stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	cmd := k.command(ctx, "port-forward", "--address=127.0.0.1", "pod/"+pod, ":"+adminPort)
	cmd.WaitDelay = time.Second
	var trouble bytes.Buffer
	cmd.Stderr = &trouble
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		cancel()
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		cancel()
		return "", nil, fmt.Errorf("this plugin runs kubectl: %w", err)
	}
	lines := bufio.NewScanner(pipe)
	if lines.Scan() {
		if m := forwarding.FindStringSubmatch(lines.Text()); m != nil {
			go func() { // it prints a line for each connection
				for lines.Scan() {
				}
			}()
			return m[1], func() { cancel(); _ = cmd.Wait() }, nil
		}
		fmt.Fprintln(&trouble, lines.Text())
	}
	cancel()
	_ = cmd.Wait()
	return "", nil, fmt.Errorf("kubectl port-forward: %s", cmp.Or(strings.TrimSpace(trouble.String()), "it ended at once"))
}

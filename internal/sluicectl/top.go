package sluicectl

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	config "sluice.dev/sluice/api/config/v1alpha1"
	status "sluice.dev/sluice/api/status/v1alpha1"
)

// topOptions are the flags of top.
type topOptions struct {
	admin    string
	interval time.Duration
	count    int
}

func (a *app) topCommand() *cobra.Command {
	var o topOptions
	c := &cobra.Command{
		Use:   "top",
		Short: "Show the traffic of a gateway's exports and clients, again and again",
		Long: "Show calls, bytes, latency and credits of a gateway's exports and clients, the busiest first. On a terminal the\n" +
			"display is drawn anew each time; Ctrl-C ends it. Clients are connections.",
		Args: exactly(0),
		RunE: func(c *cobra.Command, _ []string) error { return a.top(c.Context(), o) },
	}
	a.adminFlag(c, &o.admin)
	o.flags(c.Flags(), "n")
	return c
}

// flags adds the flags of top; short is the short form of --count.
func (o *topOptions) flags(f *pflag.FlagSet, short string) {
	f.DurationVar(&o.interval, "interval", 2*time.Second, "time between displays, 100ms or more")
	f.IntVarP(&o.count, "count", short, 0, "end after this many displays; 0: never")
}

func (a *app) top(ctx context.Context, o topOptions) error {
	if o.interval < 100*time.Millisecond {
		return fmt.Errorf("--interval is %v, must be at least 100ms", o.interval)
	}
	tick := time.NewTicker(o.interval)
	defer tick.Stop()
	last, err := a.sample(ctx, o.admin)
	if err != nil {
		return err
	}
	for shown := 0; o.count == 0 || shown < o.count; shown++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil // the way to end it
		}
		now, err := a.sample(ctx, o.admin)
		if ctx.Err() != nil {
			return nil
		} else if err != nil {
			return err
		}
		lines := 0
		if size, ok := terminalSize(a.Out); ok && size.Row > 0 {
			lines = int(size.Row) - 1
			fmt.Fprint(a.Out, "\x1b[H\x1b[2J")
		}
		var b strings.Builder
		if err := show(&b, last, now); err != nil {
			return err
		}
		if _, err := io.WriteString(a.Out, cut(b.String(), lines)); err != nil {
			return err
		}
		last = now
	}
	return nil
}

// cut returns the first lines of s, all if there is no limit.
func cut(s string, lines int) string {
	all := strings.SplitAfter(s, "\n")
	if lines <= 0 || len(all) <= lines {
		return s
	}
	return strings.Join(all[:lines], "")
}

// sample is a gateway's status at a time.
type sample struct {
	status.Status
	at time.Time
}

func (a *app) sample(ctx context.Context, admin string) (*sample, error) {
	st, err := a.status(ctx, admin)
	if err != nil {
		return nil, err
	}
	return &sample{*st, time.Now()}, nil
}

// rates are the calls of an interval.
type rates struct{ calls, errors, in, out, latency float64 }

// rates returns the rates since an earlier count. A count that fell began anew.
func (c counts) rates(before counts, d time.Duration) rates {
	if c.RPCs < before.RPCs || c.BytesIn < before.BytesIn || c.BytesOut < before.BytesOut {
		before = counts{}
	}
	s := max(d.Seconds(), 1e-9)
	n := float64(c.RPCs - before.RPCs)
	r := rates{
		calls: n / s, errors: float64(c.Errors-min(before.Errors, c.Errors)) / s,
		in: float64(c.BytesIn-before.BytesIn) / s, out: float64(c.BytesOut-before.BytesOut) / s,
	}
	if n > 0 {
		r.latency = max(c.Seconds-before.Seconds, 0) / n
	}
	return r
}

// counts are the totals of an export or a client.
type counts status.Calls

// connection identifies a client in two samples.
type connection struct {
	export        string
	network       config.Network
	remote, local netip.AddrPort
	since         time.Time
}

// show prints the rates between two samples.
func show(w io.Writer, before, now *sample) error {
	d := now.at.Sub(before.at)
	if !now.Started.Equal(before.Started) {
		before = &sample{} // another process
	}
	exports, clients := map[string]counts{}, map[connection]counts{}
	for i := range before.Exports {
		e := &before.Exports[i]
		exports[e.Name] = counts(e.Counters.Calls)
		for k := range e.Clients {
			clients[key(e, &e.Clients[k])] = counts(e.Clients[k].Counters)
		}
	}
	up := now.at.Sub(now.Started).Round(time.Second)
	state := map[bool]string{true: "ready", false: "not ready"}[now.Ready]
	if now.Draining {
		state = "draining"
	}
	fmt.Fprintf(w, "gateway %s, up %v, %s, %s\n\n", now.Build.Version, up, state, now.at.Format(time.TimeOnly))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "EXPORT\tCLIENTS\tCALLS/s\tERRORS/s\tIN/s\tOUT/s\tLATENCY\tCREDITS\tSTATE\t")
	type line struct {
		rates
		text string
	}
	var lines []line
	for i := range now.Exports {
		e := &now.Exports[i]
		r := counts(e.Counters.Calls).rates(exports[e.Name], d)
		credits := "-"
		if e.Credits != nil {
			credits = fmt.Sprint(e.Credits.Granted)
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t\n", e.Name, len(e.Clients)+e.ClientsOmitted, r, credits, e.State)
		for k := range e.Clients {
			c := &e.Clients[k]
			r := counts(c.Counters).rates(clients[key(e, c)], d)
			credits, network := "-", string(c.Network)
			if c.RDMA != nil {
				credits, network = fmt.Sprintf("%d/%d", c.RDMA.InUse, c.RDMA.Credits), fmt.Sprintf("%s v%d", c.RDMA.Provider, c.RDMA.Version)
			}
			age := now.at.Sub(c.Since).Round(time.Second)
			lines = append(lines, line{r, fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%v\t\n", c.Remote, e.Name, network, r, credits, age)})
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	slices.SortStableFunc(lines, func(a, b line) int {
		return cmp.Or(cmp.Compare(b.in+b.out, a.in+a.out), cmp.Compare(b.calls, a.calls))
	})
	fmt.Fprintln(w)
	fmt.Fprintln(t, "CLIENT\tEXPORT\tNETWORK\tCALLS/s\tERRORS/s\tIN/s\tOUT/s\tLATENCY\tCREDITS\tAGE\t")
	for _, l := range lines {
		fmt.Fprint(t, l.text)
	}
	return t.Flush()
}

func key(e *status.Export, c *status.Client) connection {
	return connection{e.Name, c.Network, c.Remote, c.Local, c.Since.UTC()}
}

// String returns the columns of rates.
func (r rates) String() string {
	latency := "-"
	if r.latency > 0 {
		latency = time.Duration(r.latency * float64(time.Second)).Round(time.Microsecond).String()
	}
	return fmt.Sprintf("%.0f\t%.0f\t%s\t%s\t%s", r.calls, r.errors, byteSize(int64(r.in)), byteSize(int64(r.out)), latency)
}

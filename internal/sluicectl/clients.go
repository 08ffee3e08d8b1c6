package sluicectl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	status "sluice.dev/sluice/api/status/v1alpha1"
)

// maxStatus bounds the bytes of an answer of the admin page.
const maxStatus = 64 << 20

func (a *app) clientsCommand() *cobra.Command {
	var admin string
	c := &cobra.Command{
		Use:   "clients [EXPORT]",
		Short: "List the NFSv4 clients of a gateway's volumes, with their opens and locks",
		Args:  between(0, 1),
		RunE: func(c *cobra.Command, args []string) error {
			only := ""
			if len(args) == 1 {
				only = args[0]
			}
			return a.listClients(c.Context(), admin, only)
		},
	}
	a.adminFlag(c, &admin)
	return c
}

func (a *app) expelCommand() *cobra.Command {
	var admin string
	c := &cobra.Command{
		Use:   "expel EXPORT CLIENT",
		Short: "End an NFSv4 client of a volume, with its opens, locks and delegations",
		Long: "expel ends an NFSv4 client of a volume, with its opens, locks and delegations. CLIENT is an ID that\n" +
			"clients lists. A client that runs comes back without them; change the access rules to keep it out.\n" +
			"The gateway accepts expel on loopback addresses only.",
		Args: exactly(2),
		RunE: func(c *cobra.Command, args []string) error {
			_, err := a.callAdmin(c.Context(), http.MethodDelete, admin, "/exports/"+url.PathEscape(args[0])+"/clients/"+url.PathEscape(args[1]))
			if err == nil {
				fmt.Fprintf(a.Out, "client %s of export %s ended\n", args[1], args[0])
			}
			return err
		},
	}
	a.adminFlag(c, &admin)
	return c
}

func (a *app) adminFlag(c *cobra.Command, admin *string) {
	a.timeoutFlag(c)
	c.Flags().StringVar(admin, "admin", "127.0.0.1:9180", "`ADDR` of the gateway's admin page, host:port")
}

// callAdmin sends a request to a gateway's admin page, and returns the body of its answer.
func (a *app) callAdmin(ctx context.Context, method, address, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, a.opts.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+address+path, nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxStatus))
	if err == nil && res.StatusCode/100 != 2 {
		err = errors.New(strings.TrimSpace(string(body)))
	}
	return body, err
}

// status asks for the status of a gateway.
func (a *app) status(ctx context.Context, admin string) (*status.Status, error) {
	body, err := a.callAdmin(ctx, http.MethodGet, admin, "/status")
	if err != nil {
		return nil, cannot(err, "ask http://%s/status", admin)
	}
	var st status.Status
	if err := json.Unmarshal(body, &st); err != nil {
		return nil, fmt.Errorf("http://%s/status is not the status of a gateway: %w", admin, err)
	}
	return &st, nil
}

func (a *app) listClients(ctx context.Context, admin, only string) error {
	st, err := a.status(ctx, admin)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(a.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "EXPORT\tCLIENT\tADDRESS\tLEASE\tOPENS\tLOCKS\tDELEGATIONS\tOWNER")
	found := only == ""
	for i := range st.Exports {
		e := &st.Exports[i]
		if only != "" && e.Name != only {
			continue
		}
		found = true
		n := e.Backend.NFS4
		if n == nil {
			continue
		}
		for _, c := range n.Clients {
			lease := time.Until(c.LeaseExpires).Round(time.Second).String()
			switch {
			case c.Expired:
				lease = "expired"
			case c.Reclaiming:
				lease += ", reclaiming"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%d\t%s\n", e.Name, c.ID, c.Remote.Addr().Unmap(), lease, c.Opens, c.Locks, c.Delegations, c.Owner)
		}
		if n.ClientsOmitted > 0 {
			fmt.Fprintf(w, "%s\t(%d more)\n", e.Name, n.ClientsOmitted)
		}
	}
	if !found {
		return fmt.Errorf("the gateway has no export %q", only)
	}
	return w.Flush()
}

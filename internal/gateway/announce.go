package gateway

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"

	config "sluice.dev/sluice/api/config/v1alpha1"
	status "sluice.dev/sluice/api/status/v1alpha1"
)

// announce prints the exports, their mount commands and the address of the admin page.
func (g *Gateway) announce(w io.Writer) {
	fmt.Fprintf(w, "Sluice gateway %s\n", g.o.Version)
	st := g.Status()
	exports := map[string]*export{}
	for _, e := range g.list() {
		exports[e.name] = e
	}
	for i := range st.Exports {
		s := &st.Exports[i]
		var x *config.Export
		if e := exports[s.Name]; e != nil {
			x = e.servedConfig()
		}
		announceExport(w, s, x)
	}
	if len(st.Exports) == 0 {
		fmt.Fprintln(w, "\nno exports: add one to the configuration file")
	}
	admin := "off"
	if a := g.Admin(); a != "" {
		admin = "http://" + a + "/"
	}
	fmt.Fprintf(w, "\nadmin page: %s\n", admin)
	fmt.Fprintln(w, "off: locking by NLM (mount version 3 with nolock); for volumes also RPCSEC_GSS")
}

func announceExport(w io.Writer, s *status.Export, x *config.Export) {
	if x == nil {
		fmt.Fprintf(w, "\nexport %s is not served: %s\n", s.Name, s.Error)
		return
	}
	fmt.Fprintf(w, "\nexport %s: %s\n", s.Name, location(&s.Backend))
	versions := x.Versions()
	names := make([]string, len(versions))
	for i, v := range versions {
		names[i] = string(v)
	}
	tcp := ""
	for _, l := range s.Listeners {
		if l.Network == config.TCP && l.State == status.Listening {
			_, tcp, _ = net.SplitHostPort(l.Address)
		}
	}
	for _, l := range s.Listeners {
		name := string(l.Network)
		if l.Provider != "" {
			name += " (" + string(l.Provider) + ")"
		}
		if l.State != status.Listening {
			fmt.Fprintf(w, "  %-13s %s: %s; retrying\n", name, l.Configured, l.Error)
			continue
		}
		fmt.Fprintf(w, "  %-13s %-22s %s\n", name, l.Address, mountLine(l, tcp, versions[len(versions)-1]))
	}
	fmt.Fprintf(w, "  versions      %s\n", strings.Join(names, ", "))
	for _, r := range x.Access {
		nets := slices.Clone(r.From.NetworkSets)
		for _, n := range r.From.Networks {
			nets = append(nets, n.String())
		}
		fmt.Fprintf(w, "  clients       %s: %s\n", strings.Join(nets, ", "), rights(r))
	}
	fmt.Fprintf(w, "  files         accessed as %s\n", s.Backend.Identity)
	for _, n := range s.Backend.Notes {
		fmt.Fprintf(w, "  note          %s\n", n)
	}
}

// location returns the directory or server of a backend.
func location(s *status.Backend) string {
	if s.Server == "" {
		return s.Path
	}
	return s.Kind + " " + s.Server + ":" + s.Path
}

// mountLine returns the mount command of a Linux client. HOST stands for any of the addresses.
func mountLine(l status.Listener, tcp string, version config.NFSVersion) string {
	host, port, err := net.SplitHostPort(l.Address)
	if err != nil {
		return ""
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsUnspecified() {
		host = "HOST"
	} else if ip.Is6() {
		host = "[" + host + "]"
	}
	o := "vers=" + string(version) + ",proto=" + string(l.Network) + ",port=" + port
	if version == config.NFSv3 {
		mount := port
		if l.Network == config.RDMA {
			mount = tcp
		}
		if mount == "" {
			return "no tcp listener serves MOUNT: Linux clients cannot mount this"
		}
		o += ",mountport=" + mount + ",mountproto=tcp,nolock"
	}
	return "mount -t nfs -o " + o + " " + host + ":/ /mnt"
}

func rights(r config.AccessRule) string {
	s := "read and write"
	if r.Mode == config.ReadOnly {
		s = "read only"
	}
	switch r.Squash {
	case config.SquashAll:
		return s + ", everybody mapped to nobody"
	case config.SquashRoot:
		return s + ", root mapped to nobody"
	default:
		return s + ", identities as they are"
	}
}

// notReadyReason returns the first error of an export or listener.
func (g *Gateway) notReadyReason() string {
	for _, e := range g.Status().Exports {
		if e.Error != "" {
			return e.Error
		}
		for _, l := range e.Listeners {
			if l.Error != "" {
				return l.Error
			}
		}
	}
	return "no listener serves"
}

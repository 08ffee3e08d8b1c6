package gateway

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"

	config "sluice.dev/sluice/api/config/v1alpha1"
)

// make makes a configuration of the flags.
func (c *cli) make() error {
	e := config.DefaultExport()
	var err error
	if c.nfs != "" {
		e.Name = "nfs"
		e.Backend.NFS, err = c.server()
	} else {
		e.Name, e.Backend.Volume = "volume", new(config.Volume)
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
	g.Admin.Address, g.StateDir, g.Log.Level = c.admin, c.stateDir, c.logLevel
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
		{"stateDir", "--state-dir"}, {"log.", "--log-level"},
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

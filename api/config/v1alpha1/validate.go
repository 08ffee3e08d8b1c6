package v1alpha1

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Validate returns all problems of a configuration with defaults set, without lines.
func (c *GatewayConfig) Validate() Problems {
	var ps Problems
	r := report{problems: &ps}
	if c.APIVersion != APIVersion {
		r.at("apiVersion").refuse(c.APIVersion, "want %s", APIVersion)
	}
	if c.Kind != Kind {
		r.at("kind").refuse(c.Kind, "want %s", Kind)
	}
	if c.Admin.Address != "" {
		checkAddress(r.at("admin").at("address"), c.Admin.Address)
	}
	if d := time.Duration(c.DrainTimeout); d < 0 || d > time.Hour {
		r.at("drainTimeout").refuse(c.DrainTimeout, "want 0s to 1h")
	}
	checkPath(r.at("stateDir"), c.StateDir)
	if c.HandleKeys.File != "" {
		checkPath(r.at("handleKeys").at("file"), c.HandleKeys.File)
	}
	oneOf(r.at("log").at("level"), c.Log.Level, "debug", "info", "warn", "error")
	oneOf(r.at("log").at("format"), c.Log.Format, "text", "json")
	c.Tracing.validate(r.at("tracing"))
	if c.Limits.Connections != 0 {
		between(r.at("limits").at("connections"), c.Limits.Connections, 1, 1<<20)
	}
	if c.Limits.Memory != 0 {
		between(r.at("limits").at("memory"), c.Limits.Memory, 8<<20, 1<<40)
	}
	between(r.at("limits").at("receiveMemory"), c.Limits.ReceiveMemory, 8<<20, 1<<40)
	if c.Exports == nil { // a truncated file must not remove all exports
		r.at("exports").refuse(nil, "missing: want a list of exports, or [] for none")
	}
	c.validateNetworkSets(r)
	for i := range c.Exports {
		c.Exports[i].validate(r.at("exports").index(i))
	}
	c.checkConflicts(r.at("exports"))
	return ps
}

func (t *Tracing) validate(r report) {
	if !(t.Ratio >= 0 && t.Ratio <= 1) {
		r.at("ratio").refuse(t.Ratio, "want 0 to 1")
	}
	if t.Endpoint == "" {
		return
	}
	if u, err := url.Parse(t.Endpoint); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		r.at("endpoint").refuse(t.Endpoint, "want the URL of an OTLP receiver, such as http://collector:4318")
	}
}

// Validate returns all problems of a single export, without lines.
func (e *Export) Validate() Problems {
	var ps Problems
	e.validate(report{problems: &ps})
	return ps
}

func (e *Export) validate(r report) {
	if want := checkName(e.Name); want != "" {
		r.at("name").refuse(e.Name, "%s", want)
	}
	if n := len(e.Listeners); n < 1 || n > 16 {
		r.at("listeners").refuse(n, "want 1 to 16 listeners")
	}
	for i := range e.Listeners {
		e.Listeners[i].validate(r.at("listeners").index(i))
	}
	e.validateBackend(r)
	if n := len(e.Access); n < 1 || n > 1024 {
		r.at("access").refuse(n, "want 1 to 1024 rules; without one no client may mount")
	}
	for i := range e.Access {
		e.Access[i].validate(r.at("access").index(i))
	}
	e.Transport.validate(r.at("transport"))
	if slices.Contains(e.Transport.RFC5666, ReadRead) && slices.ContainsFunc(e.Listeners, func(l Listener) bool { return l.Provider == Verbs }) {
		r.at("transport").at("rfc5666").refuse(string(ReadRead), "lets a client read memory, which an adapter shows to all connections: want listeners of provider iwarp alone")
	}
	e.Limits.validate(r.at("limits"))
}

func (l *Listener) validate(r report) {
	oneOf(r.at("network"), l.Network, RDMA, TCP)
	checkAddress(r.at("address"), l.Address)
	switch l.Bind {
	case "":
	case Wildcard:
		if host, port, err := net.SplitHostPort(l.Address); err == nil {
			if ip, _ := netip.ParseAddr(host); !ip.IsValid() || ip.IsUnspecified() || ip.Is4In6() || port == "0" {
				r.at("address").refuse(l.Address, "bind Wildcard distinguishes exports by address: want an IP and a port, such as 192.0.2.10:20049")
			}
		}
	default:
		r.at("bind").refuse(string(l.Bind), "want Wildcard, or leave it out")
	}
	if l.Verbs != nil && (l.Network != RDMA || l.Provider != Verbs) {
		r.at("verbs").refuse(nil, "are only for provider verbs: leave them out")
		return
	}
	if l.Network != RDMA {
		if l.Provider != "" {
			r.at("provider").refuse(string(l.Provider), "is only for network rdma: leave it out")
		}
		if l.Device != "" {
			r.at("device").refuse(l.Device, "is only for network rdma: leave it out")
		}
		if l.Options != nil {
			r.at("options").refuse(nil, "are only for network rdma: leave them out")
		}
		return
	}
	oneOf(r.at("provider"), l.Provider, IWARP, Verbs)
	checkDevice(r.at("device"), l.Provider, l.Device)
	if l.Provider == Verbs {
		if l.Options != nil {
			r.at("options").refuse(nil, "are only for provider iwarp: leave them out")
		}
		if v := l.Verbs; v != nil {
			v.validate(r.at("verbs"))
			if v.RetryCount != 0 {
				r.at("verbs").at("retryCount").refuse(v.RetryCount, "is only for backends, since the client chooses: leave it out")
			}
			if v.TOS != 0 {
				r.at("verbs").at("tos").refuse(v.TOS, "is only for backends, since the client chooses: leave it out")
			}
		}
		return
	}
	if o := l.Options; o != nil {
		o.validate(r.at("options"))
	}
}

func (v *VerbsOptions) validate(r report) {
	if d := time.Duration(v.KeepAlive); d != 0 && (d < time.Second || d > time.Hour) {
		r.at("keepAlive").refuse(v.KeepAlive, "want 1s to 1h")
	}
	if d := time.Duration(v.AckTimeout); d < 0 || d > 10*time.Second {
		r.at("ackTimeout").refuse(v.AckTimeout, "want 0s to 10s")
	}
	between(r.at("retryCount"), v.RetryCount, 0, 7)
	between(r.at("tos"), v.TOS, 0, 255)
	if n := len(v.CompletionVectors); n > 256 {
		r.at("completionVectors").refuse(n, "want 256 at most")
	}
	for i, n := range v.CompletionVectors {
		between(r.at("completionVectors").index(i), n, 0, 4095)
	}
	between(r.at("moderationCount"), v.ModerationCount, 0, 65535)
	if d := time.Duration(v.ModerationPeriod); d < 0 || d > 65*time.Millisecond || d%time.Microsecond != 0 {
		r.at("moderationPeriod").refuse(v.ModerationPeriod, "want 1µs to 65ms, in whole microseconds")
	}
	if (v.ModerationCount == 0) != (v.ModerationPeriod == 0) {
		r.at("moderationPeriod").refuse(v.ModerationPeriod, "requires moderationCount: want both or neither")
	}
	between(r.at("inline"), v.Inline, 0, 1024)
	between(r.at("spin"), v.Spin, 0, 65536)
}

func (l *Limits) validate(r report) {
	between(r.at("connections"), l.Connections, 1, 65536)
	between(r.at("connectionsPerClient"), l.ConnectionsPerClient, 1, 65536)
	between(r.at("memory"), l.Memory, 8<<20, 1<<40)
	between(r.at("memoryPerClient"), l.MemoryPerClient, 64<<10, 1<<40)
	between(r.at("memoryPerConnection"), l.MemoryPerConnection, 64<<10, 1<<40)
	between(r.at("minProgress"), l.MinProgress, 0, 1<<30)
	idle := func(r report, d Duration) {
		if d != 0 && (time.Duration(d) < time.Second || time.Duration(d) > 168*time.Hour) {
			r.refuse(d, "want 1s to 168h, or 0s for no limit")
		}
	}
	idle(r.at("idleTimeout").at("beforeFirstCall"), l.IdleTimeout.BeforeFirstCall)
	idle(r.at("idleTimeout").at("afterCall"), l.IdleTimeout.AfterCall)
}

func (o *ListenerOptions) validate(r report) {
	if o.MaxFPDU != 0 {
		between(r.at("maxFPDU"), o.MaxFPDU, 256, 64<<10-1)
	}
	if d := time.Duration(o.Spin); d < 0 || d > time.Millisecond {
		r.at("spin").refuse(o.Spin, "want 0s to 1ms")
	}
}

// checkDevice checks the optional device of a provider.
func checkDevice(r report, p Provider, device string) {
	switch {
	case device == "":
	case p != Verbs:
		r.refuse(device, "is only for provider verbs: leave it out")
	case !validDevice(device):
		r.refuse(device, "want the name of an RDMA device, such as mlx5_4 (rdma link lists them)")
	}
}

// validDevice reports whether name is a valid RDMA device name: the kernel allows 63 characters.
func validDevice(name string) bool {
	return len(name) <= 63 && name[0] != '.' &&
		strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == ""
}

func (a *AccessRule) validate(r report) {
	oneOf(r.at("mode"), a.Mode, ReadOnly, ReadWrite)
	oneOf(r.at("squash"), a.Squash, SquashNone, SquashRoot, SquashAll)
	a.From.validate(r.at("from"))
}

func (t *Transport) validate(r report) {
	t.validateVersions(r)
	threshold := func(r report, q Quantity) {
		if q < 1<<10 || q > 256<<10 || q%(1<<10) != 0 {
			r.refuse(q, "want a multiple of 1Ki from 1Ki to 256Ki")
		}
	}
	threshold(r.at("inlineThreshold").at("call"), t.InlineThreshold.Call)
	threshold(r.at("inlineThreshold").at("reply"), t.InlineThreshold.Reply)
	t.validateCredits(r.at("credits"))
	oneOf(r.at("onChange"), t.OnChange, Reconnect, NextConnection)
}

func (t *Transport) validateCredits(r report) {
	c := &t.Credits
	oneOf(r.at("policy"), c.Policy, Static, Adaptive)
	between(r.at("max"), c.Max, 1, MaxCredits)
	if c.Policy != Adaptive {
		if c.Min != 0 {
			r.at("min").refuse(c.Min, "is only for policy Adaptive: leave it out")
		}
		if c.Memory != 0 {
			r.at("memory").refuse(c.Memory, "is only for policy Adaptive: leave it out")
		}
		return
	}
	if c.Min < 1 || c.Min > c.Max {
		r.at("min").refuse(c.Min, "want 1 to %d (max)", c.Max)
		return
	}
	size, of := t.ReceiveSize(), "inlineThreshold.call"
	switch {
	case t.Placement != nil:
		of = "inlineThreshold.call, placement.receiveBuffer"
	case size != t.InlineThreshold.Call:
		of = "the least with version 2"
	}
	switch least := Quantity(c.Min) * size; {
	case c.Memory == 0:
		r.at("memory").refuse(nil, "missing: want the budget for the receives of all connections, such as 256Mi")
	case c.Memory < least:
		r.at("memory").refuse(c.Memory, "want at least %s: one connection has %d receives (min) of %s (%s)", least, c.Min, size, of)
	case c.Memory > 1<<40:
		r.at("memory").refuse(c.Memory, "want at most 1Ti")
	}
}

// checkConflicts finds resources that two exports share. The later export has the problem. With
// equal names both have it, since the name is ambiguous.
func (c *GatewayConfig) checkConflicts(r report) {
	var used []taken
	if c.Admin.Address != "" {
		used = append(used, taken{"admin.address", c.Admin.Address, ""})
	}
	for i, e := range c.Exports {
		re := r.index(i)
		for j, o := range c.Exports {
			if i == j {
				continue
			}
			if e.Name != "" && e.Name == o.Name {
				re.at("name").refuse(e.Name, "%s.name is the same: want a name for each export", r.index(j).path)
			}
			if j < i && e.UID != "" && e.UID == o.UID {
				re.at("uid").refuse(e.UID, "%s.uid is the same: want one for each export", r.index(j).path)
			}
			if v, w := e.Backend.Volume, o.Backend.Volume; j < i && v != nil && w != nil && v.Path != "" && path.Clean(v.Path) == path.Clean(w.Path) {
				re.at("backend").at("volume").at("path").refuse(v.Path, "%s serves this directory: want one export for each", r.index(j).path)
			}
		}
		var own []taken
		for j, l := range e.Listeners {
			rl := re.at("listeners").index(j).at("address")
			for _, u := range append(used, own...) {
				if overlap(u, taken{"", l.Address, l.Bind}) {
					rl.refuse(l.Address, "%s is %q: want an address or port of its own", u.field, u.address)
					break
				}
			}
			own = append(own, taken{rl.path, l.Address, l.Bind})
		}
		used = append(used, own...)
	}
}

type taken struct {
	field, address string
	bind           Bind
}

// overlap reports whether two addresses cannot both be bound.
func overlap(a, b taken) bool {
	ha, pa, err1 := net.SplitHostPort(a.address)
	hb, pb, err2 := net.SplitHostPort(b.address)
	if err1 != nil || err2 != nil || pa != pb || pa == "0" {
		return false
	}
	wild := func(h string) bool { return h == "" || h == "::" }
	norm := func(h string) netip.Addr {
		if h == "localhost" {
			h = "127.0.0.1"
		}
		ip, _ := netip.ParseAddr(h)
		return ip.Unmap()
	}
	if wild(ha) || wild(hb) || a.bind != b.bind {
		return true
	}
	x, y := norm(ha), norm(hb)
	return x == y || x.Is4() && y.Is4() && (x.IsUnspecified() || y.IsUnspecified())
}

// checkName returns the expected form if name is invalid.
func checkName(name string) string {
	const want = "want at most 253 of a to z, 0 to 9, '-' and '.', beginning and ending with a letter or digit"
	if name == "" {
		return "missing: " + want
	}
	alnum := func(c byte) bool { return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' }
	if len(name) > 253 || !alnum(name[0]) || !alnum(name[len(name)-1]) {
		return want
	}
	for i := range len(name) {
		if c := name[i]; !alnum(c) && c != '-' && c != '.' {
			return want
		}
	}
	return ""
}

func checkAddress(r report, address string) {
	if address == "" {
		r.refuse(nil, `missing: want "IP:port", such as "127.0.0.1:2049"`)
		return
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		r.refuse(address, `want "IP:port", such as "127.0.0.1:2049" or "[::1]:2049"`)
		return
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || strconv.FormatUint(n, 10) != port {
		r.refuse(address, "the port %q is not a number from 0 to 65535", port)
		return
	}
	if _, err := netip.ParseAddr(host); err != nil && host != "" && host != "localhost" {
		r.refuse(address, "%q is not an IP address: want one of this host's, localhost, or nothing before the colon for all", host)
	}
}

func checkPath(r report, p string) {
	switch {
	case p == "":
		r.refuse(nil, "missing: want an absolute path, such as /srv/data")
	case !path.IsAbs(p):
		r.refuse(p, "want an absolute path, such as /srv/data")
	case strings.ContainsRune(p, 0):
		r.refuse(p, "want a path without zero bytes")
	}
}

func oneOf[T ~string](r report, v T, allowed ...T) {
	if slices.Contains(allowed, v) {
		return
	}
	words := make([]string, len(allowed))
	for i, a := range allowed {
		words[i] = string(a)
	}
	missing := ""
	if v == "" {
		missing = "missing: "
	}
	r.refuse(string(v), "%swant %s", missing, strings.Join(words, " or "))
}

func between[T int | Quantity](r report, v, low, high T) {
	if v < low || v > high {
		r.refuse(v, "want %s to %s", fmt.Sprint(low), fmt.Sprint(high))
	}
}

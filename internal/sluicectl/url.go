package sluicectl

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"path"
	"strconv"
	"strings"
)

// target is a URL taken apart: nfs+rdma://host:port/path?export=/dir&mountport=N, or the same with
// nfs+tcp.
type target struct {
	url      string
	rdma     bool
	address  string // host:port of NFS
	mount    string // host:port of MOUNT on TCP; "" means the NFS connection
	export   string // path for MOUNT
	path     string // inside the export, slash-separated; "/" is its root
	hasSlash bool   // the path ends with a slash: it names a directory
	globs    []element
}

const (
	schemeRDMA, defaultRDMAPort = "nfs+rdma", "20049"
	schemeTCP, defaultTCPPort   = "nfs+tcp", "2049"
)

const urlHelp = `A URL is nfs+rdma://host[:port]/path or nfs+tcp://host[:port]/path; the ports are 20049 and 2049

unless it names another. The path lies inside the export, which is "/" unless "?export=/dir" names another.
The export's root is asked for by MOUNT on the same connection, or by TCP on the port that "?mountport=N" names.
Commands that take several URLs match * and [a-z] in their paths; %2A and %5B are these characters themselves.`

func parseTarget(s string) (*target, error) {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%q is no URL that I understand: %s", s, fmt.Sprintf(format, args...))
	}
	u, err := url.Parse(s)
	var parse *url.Error
	if errors.As(err, &parse) {
		err = parse.Err // the rest of it repeats the URL
	}
	if err != nil {
		return nil, bad("%v", err)
	}
	t := &target{url: s, export: "/", path: path.Clean("/" + u.Path), hasSlash: strings.HasSuffix(u.Path, "/")}
	port := defaultTCPPort
	switch u.Scheme {
	case schemeRDMA:
		t.rdma, port = true, defaultRDMAPort
	case schemeTCP:
	case "nfs":
		return nil, bad("nfs:// leaves the transport open: nfs+tcp:%s or nfs+rdma:%[1]s", strings.TrimPrefix(s, u.Scheme+":"))
	default:
		return nil, bad("it must begin with nfs+rdma:// or nfs+tcp://")
	}
	if u.Opaque != "" || u.User != nil || u.Fragment != "" {
		return nil, bad("it may have a host, a port, a path and a query, no more")
	}
	if u.Hostname() == "" {
		return nil, bad("it names no host")
	}
	if u.Port() != "" {
		port = u.Port()
		if err := checkPort(port); err != nil {
			return nil, bad("port %v", err)
		}
	}
	t.globs = parseGlobs(u.EscapedPath())
	t.address = net.JoinHostPort(u.Hostname(), port)
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, bad("its query: %v", err)
	}
	for key, values := range query {
		v := values[len(values)-1]
		switch key {
		case "mountport":
			if err := checkPort(v); err != nil {
				return nil, bad("mountport %v", err)
			}
			t.mount = net.JoinHostPort(u.Hostname(), v)
		case "export":
			if !strings.HasPrefix(v, "/") {
				return nil, bad("export is %q, must begin with a slash", v)
			}
			t.export = v
		default:
			return nil, bad("its query has %q, only export and mountport are known", key)
		}
	}
	return t, nil
}

func checkPort(s string) error {
	if n, err := strconv.Atoi(s); err != nil || n < 1 || n > 65535 {
		return fmt.Errorf("is %q, must be 1 to 65535", s)
	}
	return nil
}

// base is the last element of the path, "" for the root.
func (t *target) base() string {
	if t.path == "/" {
		return ""
	}
	return path.Base(t.path)
}

func (t *target) String() string { return t.url }

func (t *target) scheme() string {
	if t.rdma {
		return schemeRDMA
	}
	return schemeTCP
}

// host is the name or address of the server, without a port.
func (t *target) host() string {
	host, _, _ := net.SplitHostPort(t.address)
	return host
}

// move returns the URL of another path of the export.
func (t *target) move(to string) *target {
	other := *t
	other.path, other.globs = path.Clean(to), nil
	if u, err := url.Parse(t.url); err == nil {
		u.Path, u.RawPath = other.path, ""
		if t.hasSlash && other.path != "/" {
			u.Path += "/"
		}
		other.url = u.String()
	}
	return &other
}

// server identifies the export.
func (t *target) server() string {
	return fmt.Sprint(t.rdma, " ", t.address, " ", t.mount, " ", t.export)
}

// element is an element of a URL's path.
type element struct {
	name    string
	pattern string // of path.Match; "" if the element has no * or [
}

// parseGlobs splits the escaped path of a URL. Escaped characters are no globs, nor is a [ without
// its end. It returns nil if there are no globs.
func parseGlobs(escaped string) (all []element) {
	globs := false
	for raw := range strings.SplitSeq(escaped, "/") {
		name, err := url.PathUnescape(raw)
		if err != nil {
			return nil
		}
		switch name {
		case "", ".":
			continue
		case "..":
			all = all[:max(0, len(all)-1)]
			continue
		}
		x := element{name: name}
		if strings.ContainsAny(raw, "*[") {
			x.pattern = globPattern(raw)
			if _, err := path.Match(x.pattern, ""); err != nil {
				x.pattern = ""
			}
		}
		globs = globs || x.pattern != ""
		all = append(all, x)
	}
	if !globs {
		return nil
	}
	return all
}

// globPattern makes a pattern of an escaped element: only *, [, ], ^ and - stand for themselves.
func globPattern(raw string) string {
	var b strings.Builder
	for len(raw) > 0 {
		n := 1
		if raw[0] == '%' {
			n = 3
		}
		c, _ := url.PathUnescape(raw[:n])
		if n == 3 && strings.ContainsAny(c, `*?[]\^-`) || c == `\` || c == "?" {
			b.WriteByte('\\')
		}
		b.WriteString(c)
		raw = raw[n:]
	}
	return b.String()
}

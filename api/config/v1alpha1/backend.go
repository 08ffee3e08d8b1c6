package v1alpha1

import (
	"crypto/sha256"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
)

// MaxBackendPath is the maximum length of the path of an nfs or rdma backend, in bytes.
const MaxBackendPath = 1024

// Remote returns the server of an nfs or rdma backend, in one shape, and its network. ok is false
// for other backends.
func (b *Backend) Remote() (s NFSServer, n Network, ok bool) {
	switch {
	case b.NFS != nil:
		return *b.NFS, TCP, true
	case b.RDMA != nil:
		r := b.RDMA
		return NFSServer{Server: r.Server, Port: r.Port, Path: r.Path, Within: r.Within, Versions: r.Versions, SoftTimeout: r.SoftTimeout}, RDMA, true
	default:
		return s, "", false
	}
}

// Identity identifies the export: UID, or 16 bytes of a hash of Name if UID is empty.
func (e *Export) Identity() []byte {
	if e.UID != "" {
		return []byte(e.UID)
	}
	sum := sha256.Sum256([]byte("sluice export " + e.Name))
	return sum[:16]
}

func (b *Backend) kinds() (names []string) {
	for _, k := range []struct {
		name string
		set  bool
	}{{"volume", b.Volume != nil}, {"nfs", b.NFS != nil}, {"rdma", b.RDMA != nil}} {
		if k.set {
			names = append(names, k.name)
		}
	}
	return names
}

func (e *Export) validateBackend(r report) {
	kinds := e.Backend.kinds()
	rb := r.at("backend")
	switch len(kinds) {
	case 0:
		rb.refuse(nil, "want one of volume: {path: DIRECTORY}, nfs: {server: HOST, path: /PATH} and rdma: {server: HOST, path: /PATH}")
		return
	case 1:
	default:
		rb.refuse(raw(strings.Join(kinds, ", ")), "want one of them for each export")
		return
	}
	if v := e.Backend.Volume; v != nil {
		checkPath(rb.at("volume").at("path"), v.Path)
		v.NFS4.validate(rb.at("volume").at("nfs4"))
		only := func(r report, value, why string) {
			if value != "" {
				r.refuse(value, "is only for nfs and rdma backends, %s: leave it out", why)
			}
		}
		only(r.at("uid"), e.UID, "since an export's name identifies its volume")
		only(r.at("signHandles"), string(e.SignHandles), "since handles of a volume are always signed")
		only(r.at("gss"), string(e.GSS), "since volumes do not support RPCSEC_GSS")
		return
	}
	rb = rb.at(kinds[0])
	s, network, _ := e.Backend.Remote()
	if want := checkHost(s.Server); want != "" {
		rb.at("server").refuse(s.Server, "%s", want)
	}
	between(rb.at("port"), s.Port, 1, 65535)
	if network == TCP {
		between(rb.at("mountPort"), s.MountPort, 0, 65535)
	} else {
		e.Backend.RDMA.checkProvider(rb)
		e.Backend.RDMA.checkRFC5666(rb.at("rfc5666"))
	}
	checkBackendPath(rb.at("path"), s.Path)
	if s.Within != "" {
		checkBackendPath(rb.at("within"), s.Within)
		if s.Path != s.Within && !strings.HasPrefix(s.Path, strings.TrimSuffix(s.Within, "/")+"/") {
			rb.at("within").refuse(s.Within, "path is %s: want it, or a directory above it", s.Path)
		}
	}
	e.checkVersions(rb.at("versions"), s.Versions)
	if d := time.Duration(s.SoftTimeout); d != 0 && (d < time.Second || d > 10*time.Minute) {
		rb.at("softTimeout").refuse(s.SoftTimeout, "want 1s to 10m, or 0s for no limit")
	}
	if e.UID != "" && !validUID(e.UID) {
		r.at("uid").refuse(e.UID, "want 8 to 64 printable ASCII characters without spaces")
	}
	oneOf(r.at("signHandles"), e.SignHandles, SignRequired, SignAuto, SignOff)
	oneOf(r.at("gss"), e.GSS, GSSRefuse, GSSPassThrough)
	if e.GSS == GSSPassThrough {
		e.checkPassThrough(r, rb, s.Path)
	}
}

// domainName matches domains of at most 253 characters.
var domainName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$`)

func (n *NFS4) validate(r report) {
	duration := func(r report, d, low Duration) {
		if d < low || d > Duration(time.Hour) {
			r.refuse(d, "want %s to 1h", low)
		}
	}
	duration(r.at("lease"), n.Lease, Duration(10*time.Second))
	duration(r.at("grace"), n.Grace, max(n.Lease, Duration(10*time.Second)))
	between(r.at("clients"), n.Clients, 1, 65536)
	between(r.at("opens"), n.Opens, 0, 1<<20)
	between(r.at("locks"), n.Locks, 0, 1<<20)
	between(r.at("delegations"), n.Delegations, -1, 1<<20)
	oneOf(r.at("sessions"), n.Sessions, SessionsVolatile, SessionsPersistent)
	if n.IDDomain != "" && !domainName.MatchString(n.IDDomain) {
		r.at("idDomain").refuse(n.IDDomain, "want a domain, such as example.com")
	}
}

func (s *RDMAServer) checkProvider(r report) {
	if s.Provider != "" {
		oneOf(r.at("provider"), s.Provider, IWARP, Verbs)
	}
	checkDevice(r.at("device"), s.Provider, s.Device)
	if v := s.Verbs; v != nil && s.Provider != Verbs {
		r.at("verbs").refuse(nil, "are only for provider verbs: leave them out")
	} else if v != nil {
		v.validate(r.at("verbs"))
	}
}

func (s *RDMAServer) checkRFC5666(r report) {
	checkForms(r, s.RFC5666)
	if slices.Contains(s.RFC5666, ReadRead) && !slices.Equal(s.Versions, []NFSVersion{NFSv3}) {
		r.refuse(string(ReadRead), `may have a call executed twice, which sessions and opens do not bear: want versions: ["3"], or leave it out`)
	}
}

// VolumeVersions are the NFS versions of a volume, in order.
var VolumeVersions = []NFSVersion{NFSv3, NFSv41, NFSv42}

// Versions returns the NFS versions for clients, in order.
func (e *Export) Versions() []NFSVersion {
	if remote, _, ok := e.Backend.Remote(); ok {
		return slices.Sorted(slices.Values(remote.Versions))
	}
	return VolumeVersions
}

func (e *Export) checkVersions(r report, versions []NFSVersion) {
	if len(versions) == 0 {
		r.refuse(0, `want one or more of "3", "4.0", "4.1" and "4.2"`)
	}
	for i, v := range versions {
		oneOf(r.index(i), v, NFSv3, NFSv40, NFSv41, NFSv42)
		if slices.Contains(versions[:i], v) {
			r.index(i).refuse(string(v), "is listed twice: want each version once")
		}
	}
	reads := slices.IndexFunc(e.Access, func(a AccessRule) bool { return a.Mode == ReadOnly })
	if i := slices.Index(versions, NFSv40); i >= 0 && reads >= 0 {
		r.index(i).refuse(string(NFSv40), "access[%d].mode is ReadOnly, but 4.0 needs the owner's seqid to advance also where a call is refused, which only the backend could do: "+
			"remove 4.0, or use ReadWrite in every rule", reads)
	}
}

// checkPassThrough refuses rules that need rewritten calls: RPCSEC_GSS signs or encrypts them.
func (e *Export) checkPassThrough(r, backend report, root string) {
	const why = "gss is PassThrough, which forwards calls unread: want "
	if e.SignHandles != SignOff {
		r.at("signHandles").refuse(string(e.SignHandles), why+"Off, or gss: Refuse")
	}
	for i, a := range e.Access {
		ra := r.at("access").index(i)
		if a.Mode == ReadOnly {
			ra.at("mode").refuse(string(a.Mode), why+"ReadWrite, or gss: Refuse")
		}
		if a.Squash == SquashRoot || a.Squash == SquashAll {
			ra.at("squash").refuse(string(a.Squash), why+"None, or gss: Refuse")
		}
	}
	if root != "/" {
		backend.at("path").refuse(root, why+`"/", the backend's own root, or gss: Refuse`)
	}
}

func validUID(s string) bool {
	return len(s) >= 8 && len(s) <= 64 && !strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c > '~' })
}

// checkHost returns the expected form if s is neither a host's IP address nor a host name.
func checkHost(s string) string {
	const want = "want a host's name, such as filer.example, or its IP address"
	if s == "" {
		return "missing: " + want
	}
	if a, err := netip.ParseAddr(s); err == nil {
		if a.IsUnspecified() || a.IsMulticast() {
			return "is no host's address: " + want
		}
		return ""
	}
	if len(s) > 253 {
		return want + ", of at most 253 characters"
	}
	labels := strings.Split(s, ".")
	for _, l := range labels {
		if len(l) == 0 || len(l) > 63 || l[0] == '-' || l[len(l)-1] == '-' ||
			strings.Trim(l, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" {
			return want + ", without brackets and port"
		}
	}
	if strings.Trim(labels[len(labels)-1], "0123456789") == "" {
		return want + "; this looks like an address, but is not one"
	}
	return ""
}

// checkBackendPath accepts one spelling of a path only, since the path decides which files clients
// can reach.
func checkBackendPath(r report, p string) {
	switch {
	case p == "":
		r.refuse(nil, "missing: want the absolute path of the server's export, such as /vol/data")
	case len(p) > MaxBackendPath:
		r.refuse(p, "has %d bytes: want at most %d", len(p), MaxBackendPath)
	case strings.ContainsRune(p, 0):
		r.refuse(p, "want a path without zero bytes")
	case !path.IsAbs(p):
		r.refuse(p, "want an absolute path, such as /vol/data")
	case path.Clean(p) != p:
		r.refuse(p, "want %q: no \"..\", \".\", repeated or trailing slash", path.Clean(p))
	}
}

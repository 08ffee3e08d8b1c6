package plan

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"sluice.dev/sluice/api/v1alpha1"
)

// refusal is the reason for a False condition.
type refusal struct{ reason, message string }

func refuse(reason, format string, a ...any) *refusal {
	return &refusal{reason, fmt.Sprintf(format, a...)}
}

// consent refuses an export of a namespace or backend that the gateway does not allow.
func consent(in *Input, e *v1alpha1.NFSExport) *refusal {
	g := in.Gateway
	if r := namespaceAllowed(in, e); r != nil {
		return r
	}
	server, dir := "", ""
	switch b := &e.Spec.Backend; {
	case b.NFS != nil:
		server, dir = b.NFS.Server, b.NFS.Path
	case b.RDMA != nil:
		server, dir = b.RDMA.Server, b.RDMA.Path
	case b.PersistentVolumeClaim != nil && e.Namespace != g.Namespace:
		return refuse(v1alpha1.ReasonClaimElsewhere, "claim %q must be in the gateway's namespace %q, and the export is in namespace %q: move the export to namespace %q, or create a gateway in namespace %q",
			b.PersistentVolumeClaim.ClaimName, g.Namespace, e.Namespace, g.Namespace, e.Namespace)
	default:
		return nil
	}
	if len(g.Spec.AllowedBackends) == 0 && e.Namespace == g.Namespace {
		return nil
	}
	if _, allowed := allowedDir(g, server, dir); allowed {
		return nil
	}
	return refuse(v1alpha1.ReasonBackendNotAllowed, "NFSGateway %s/%s does not allow backend %s:%s: ask its owner to add {servers: [%s], paths: [%s]} to spec.allowedBackends",
		g.Namespace, g.Name, server, dir, server, dir)
}

func namespaceAllowed(in *Input, e *v1alpha1.NFSExport) *refusal {
	g := in.Gateway
	allowed := &g.Spec.AllowedExports.Namespaces
	switch allowed.From {
	case v1alpha1.NamespacesAll:
		return nil
	case v1alpha1.NamespacesSelector:
		s, err := metav1.LabelSelectorAsSelector(allowed.Selector)
		// Every namespace has labels. Without them it is not known yet, and selectors may require
		// absence.
		if have := in.Namespaces[e.Namespace]; err == nil && len(have) > 0 && s.Matches(labels.Set(have)) {
			return nil
		}
		return refuse(v1alpha1.ReasonNamespaceNotAllowed, "NFSGateway %s/%s allows only exports of namespaces with labels %s, which namespace %q lacks: ask its owner to label the namespace, or to change spec.allowedExports",
			g.Namespace, g.Name, metav1.FormatLabelSelector(allowed.Selector), e.Namespace)
	}
	if e.Namespace == g.Namespace {
		return nil
	}
	return refuse(v1alpha1.ReasonNamespaceNotAllowed, "NFSGateway %s/%s allows only exports of its own namespace: ask its owner to add namespace %q to spec.allowedExports", g.Namespace, g.Name, e.Namespace)
}

// allowedDir reports whether spec.allowedBackends allows a directory, and the longest path that
// does: "/" if all are allowed.
func allowedDir(g *v1alpha1.NFSGateway, server, dir string) (longest string, allowed bool) {
	for i := range g.Spec.AllowedBackends {
		a := &g.Spec.AllowedBackends[i]
		if !slices.ContainsFunc(a.Servers, func(s string) bool { return s == "*" || sameServer(s, server) }) {
			continue
		}
		if len(a.Paths) == 0 {
			return "/", true
		}
		for _, p := range a.Paths {
			p = path.Clean(p)
			if !within(p, path.Clean(dir)) {
				continue
			}
			if p == "/" {
				return p, true
			}
			if allowed = true; len(p) > len(longest) {
				longest = p
			}
		}
	}
	return longest, allowed
}

// bound returns the directory that symbolic links of an export must not leave; "" if there is none.
func bound(g *v1alpha1.NFSGateway, server, dir string) string {
	p, _ := allowedDir(g, server, dir)
	if p == "/" || p == path.Clean(dir) {
		return ""
	}
	return p
}

// sameServer compares host names without case, and addresses in any spelling.
func sameServer(a, b string) bool {
	x, err1 := netip.ParseAddr(a)
	y, err2 := netip.ParseAddr(b)
	if err1 == nil && err2 == nil {
		return x.Unmap() == y.Unmap()
	}
	return strings.EqualFold(a, b)
}

// within reports whether dir is parent or lies below it. Both must be clean.
func within(parent, dir string) bool {
	if parent == "/" || parent == "" || parent == "." {
		return true
	}
	rest, ok := strings.CutPrefix(dir, parent)
	return ok && (rest == "" || rest[0] == '/')
}

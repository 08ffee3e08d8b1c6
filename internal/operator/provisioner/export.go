package provisioner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/plan"
	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/binding"
	"sluice.dev/sluice/pkg/nfs/client"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/oncrpc"
)

// tree is an export's tree of files, by a connection to a gateway pod.
type tree struct {
	*client.Client
	conn *oncrpc.Client
	root nfs3.Handle
}

// open connects to a pod that serves the export. Unlike the address that clients mount, pods can be
// reached on the cluster's network with exposure VirtualIP too, and see the operator's own address.
func (p *Provisioner) open(ctx context.Context, x *v1alpha1.NFSExport) (*tree, error) {
	addresses, err := p.addresses(ctx, x)
	if err != nil {
		return nil, err
	}
	var conn *oncrpc.Client
	for _, a := range addresses {
		if conn, err = oncrpc.Dial(ctx, a, oncrpc.Config{Pool: p.pool, Bindings: binding.For}); err == nil {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("connect to NFSExport %s/%s: %w", x.Namespace, x.Name, err)
	}
	t := &tree{conn: conn}
	if err := t.mount(ctx, p.pool); err != nil {
		t.close()
		return nil, fmt.Errorf("mount NFSExport %s/%s: %w%s", x.Namespace, x.Name, err, hint(err))
	}
	return t, nil
}

// hint names the usual cause of a refusal. A gateway closes connections from addresses without a
// rule.
func hint(err error) string {
	for _, refusal := range []error{fs.ErrPermission, unix.EROFS, unix.ECONNRESET, io.EOF} {
		if errors.Is(err, refusal) {
			return "; spec.access of the NFSExport wants a rule {from: {provisioner: true}, mode: ReadWrite, squash: None}"
		}
	}
	return ""
}

// addresses returns the addresses of the ready pods of an export, for NFS on TCP.
func (p *Provisioner) addresses(ctx context.Context, x *v1alpha1.NFSExport) (all []string, err error) {
	namespace := kube.InNamespace(plan.GatewayNamespace(x))
	var services corev1.ServiceList
	if err := p.reader.List(ctx, &services, namespace, kube.MatchingLabels{plan.LabelExportNamespace: x.Namespace, plan.LabelExport: x.Name}); err != nil {
		return nil, err
	}
	for i := range services.Items {
		s := &services.Items[i].Spec
		for _, port := range s.Ports {
			if port.Name != plan.PortTCP || len(s.Selector) == 0 {
				continue
			}
			var pods corev1.PodList
			if err := p.reader.List(ctx, &pods, namespace, kube.MatchingLabels(s.Selector)); err != nil {
				return nil, err
			}
			for j := range pods.Items {
				if pod := &pods.Items[j]; ready(pod) {
					all = append(all, net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(port.TargetPort.IntValue())))
				}
			}
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("NFSExport %s/%s has no ready pod", x.Namespace, x.Name)
	}
	return all, nil
}

func ready(pod *corev1.Pod) bool {
	if pod.DeletionTimestamp != nil || pod.Status.PodIP == "" {
		return false
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// mount finds the root, as user 0.
func (t *tree) mount(ctx context.Context, pool *bufpool.Pool) error {
	var user oncrpc.AuthSysParms
	if host, err := os.Hostname(); err == nil {
		user.Machine = []byte(host[:min(len(host), oncrpc.MaxMachineName)])
	}
	cfg := client.Config{Requester: t.conn, Pool: pool}
	var err error
	if cfg.Cred, err = user.Auth(); err != nil {
		return err
	}
	if cfg.Version, err = client.Best(ctx, cfg); err != nil {
		return err
	}
	t.Client = client.New(cfg)
	t.root, err = t.Mount(ctx, "/")
	return err
}

func (t *tree) close() {
	if t.Client != nil {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		_ = t.Close(ctx)
	}
	_ = t.conn.Close()
	t.conn.Wait()
}

// dir finds a directory by its path, without symbolic links: a client with access to the export
// could point them elsewhere.
func (t *tree) dir(ctx context.Context, path string) (nfs3.Handle, error) {
	at := t.root
	for name := range strings.FieldsFuncSeq(path, func(r rune) bool { return r == '/' }) {
		o, err := t.lookup(ctx, at, name)
		if err == nil && o.Attr.Attr.Type != nfs3.Dir {
			err = fmt.Errorf("%q is no directory", name)
		}
		if err != nil {
			return nil, &fs.PathError{Op: "find directory", Path: path, Err: err}
		}
		at = o.Handle
	}
	return at, nil
}

// lookup finds a name with its attributes.
func (t *tree) lookup(ctx context.Context, dir nfs3.Handle, name string) (o client.Object, err error) {
	if o, err = t.Lookup(ctx, dir, name); err == nil && !o.Attr.Present {
		o.Attr.Attr, err = t.GetAttr(ctx, o.Handle)
	}
	return o, err
}

// makeDir makes an empty directory, or takes that of an earlier call.
func (t *tree) makeDir(ctx context.Context, parent nfs3.Handle, name string, attrs nfs3.SetAttrs) error {
	o, err := t.Mkdir(ctx, parent, name, attrs)
	if errors.Is(err, fs.ErrExist) {
		if o, err = t.lookup(ctx, parent, name); err != nil {
			return err
		}
		if o.Attr.Attr.Type != nfs3.Dir {
			return fmt.Errorf("%q is there and is no directory", name)
		}
		for e, err := range t.ReadDirPlus(ctx, o.Handle) {
			if err != nil {
				return err
			}
			if e.Name != "." && e.Name != ".." {
				return fmt.Errorf("directory %q is there and is not empty", name)
			}
		}
	}
	if err != nil {
		return err
	}
	// A server may leave bits of the mode out.
	return t.SetAttr(ctx, o.Handle, attrs, nil)
}

package provisioner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/plan"
	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/binding"
	"sluice.dev/sluice/pkg/nfs/server"
	"sluice.dev/sluice/pkg/oncrpc"
)

// env is an export of a directory, as the provisioner sees it: objects of the API server, and a
// server on loopback.
type env struct {
	*Provisioner
	t      *testing.T
	dir    string // the export's root
	export *v1alpha1.NFSExport
	pods   []corev1.Pod
	port   int
	squash server.Squash
}

func newEnv(t *testing.T, squash server.Squash) *env {
	t.Helper()
	e := &env{t: t, dir: t.TempDir(), squash: squash}
	e.Provisioner = New(e)
	s, err := server.New(server.Config{Root: e.dir, StateDir: t.TempDir(), Name: "data", NFS4: &server.NFS4Config{},
		Access: []server.Rule{{Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Squash: squash}}})
	must(t, err)
	rpc, err := oncrpc.NewServer(oncrpc.Config{Pool: bufpool.New(0), Handler: s, Bindings: binding.For})
	must(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	var serving sync.WaitGroup
	serving.Go(func() { _ = rpc.Serve(l) })
	t.Cleanup(func() {
		_ = rpc.Close()
		serving.Wait()
		must(t, s.Close())
		if n := e.pool.Stats().Bufs; n != 0 {
			t.Errorf("%d buffers were not released", n)
		}
	})
	e.port = l.Addr().(*net.TCPAddr).Port
	e.export = &v1alpha1.NFSExport{ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: "data"}}
	e.export.Spec.GatewayRef = v1alpha1.GatewayReference{Name: "gateway", Namespace: "gateways"}
	e.export.Status = v1alpha1.NFSExportStatus{
		Mount:    "mount -t nfs -o vers=4.2,proto=rdma,port=20049 192.0.2.7:/ /mnt",
		MountTCP: "mount -t nfs -o vers=4.2,proto=tcp6,port=2049 [fd00::7]:/ /mnt",
	}
	for i, state := range []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionTrue} {
		e.pods = append(e.pods, corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "gateways", Name: fmt.Sprint("gateway-", i), Labels: map[string]string{"pods": "of-gateway"}},
			Status: corev1.PodStatus{PodIP: []string{"192.0.2.1", "127.0.0.1"}[i],
				Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: state}}},
		})
	}
	return e
}

// Get and List have the objects.
func (e *env) Get(_ context.Context, key kube.ObjectKey, o kube.Object, _ ...kube.GetOption) error {
	x, ok := o.(*v1alpha1.NFSExport)
	if !ok {
		return fmt.Errorf("unexpected kind %T", o)
	}
	if e.export == nil || key != kube.ObjectKeyFromObject(e.export) {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "nfsexports"}, key.Name)
	}
	e.export.DeepCopyInto(x)
	return nil
}

func (e *env) List(_ context.Context, l kube.ObjectList, options ...kube.ListOption) error {
	var o kube.ListOptions
	o.ApplyOptions(options)
	if o.Namespace != "gateways" {
		return fmt.Errorf("unexpected namespace %q", o.Namespace)
	}
	switch l := l.(type) {
	case *corev1.ServiceList:
		s := corev1.Service{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{plan.LabelExportNamespace: "storage", plan.LabelExport: "data"}}}
		s.Spec.Selector = map[string]string{"pods": "of-gateway"}
		s.Spec.Ports = []corev1.ServicePort{{Name: plan.PortRDMA, Port: 20049, TargetPort: intstr.FromInt32(1)}, {Name: plan.PortTCP, Port: 2049, TargetPort: intstr.FromInt(e.port)}}
		if o.LabelSelector.Matches(labels.Set(s.Labels)) {
			l.Items = append(l.Items, s)
		}
	case *corev1.PodList:
		for _, p := range e.pods {
			if o.LabelSelector.Matches(labels.Set(p.Labels)) {
				l.Items = append(l.Items, p)
			}
		}
	default:
		return fmt.Errorf("unexpected kind %T", l)
	}
	return nil
}

const claimUID = "2f1bd6f0-8c43-4dd1-8e1c-5ad4f45a7c1e"

// options are those of a claim with a StorageClass with these parameters.
func options(parameters ...string) controller.ProvisionOptions {
	c := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "sluice"}, Provisioner: Name, Parameters: map[string]string{"export": "storage/data"}}
	for pair := range slices.Chunk(parameters, 2) {
		c.Parameters[pair[0]] = pair[1]
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "scratch", UID: claimUID}}
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("5Gi")}
	return controller.ProvisionOptions{StorageClass: c, PVName: "pvc-" + claimUID, PVC: claim}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestProvision(t *testing.T) {
	e := newEnv(t, server.SquashNone)
	must(t, os.Mkdir(filepath.Join(e.dir, "volumes"), 0o755))
	o := options("parent", "/volumes", "mode", "2770", "uid", "1000", "gid", "2000")
	o.StorageClass.MountOptions = []string{"nconnect=4", "hard"}
	dir := filepath.Join(e.dir, "volumes", o.PVName)
	var pv *corev1.PersistentVolume
	for range 2 { // again, as after a crash
		var state controller.ProvisioningState
		var err error
		if pv, state, err = e.Provision(t.Context(), o); err != nil || state != controller.ProvisioningFinished {
			t.Fatal(state, err)
		}
		if s := pv.Spec.NFS; s.Server != "192.0.2.7" || s.Path != "/volumes/"+o.PVName || s.ReadOnly {
			t.Errorf("the volume is %+v", s)
		}
		if want := []string{"vers=4.2", "proto=rdma", "port=20049", "nconnect=4", "hard"}; !slices.Equal(pv.Spec.MountOptions, want) {
			t.Errorf("mount options %q, must be %q", pv.Spec.MountOptions, want)
		}
		if pv.Name != o.PVName || pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete ||
			pv.Spec.Capacity.Storage().String() != "5Gi" || !slices.Equal(pv.Spec.AccessModes, o.PVC.Spec.AccessModes) {
			t.Errorf("the volume is %+v", pv)
		}
		info, err := os.Stat(dir)
		must(t, err)
		if s := info.Sys().(*syscall.Stat_t); s.Uid != 1000 || s.Gid != 2000 || s.Mode&0o7777 != 0o2770 {
			t.Errorf("the directory has mode %o, owner %d, group %d", s.Mode, s.Uid, s.Gid)
		}
	}

	must(t, os.MkdirAll(filepath.Join(dir, "a/b"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "a/b/file"), []byte("data"), 0o400))
	must(t, os.Mkdir(filepath.Join(e.dir, "volumes/other"), 0o700))
	must(t, os.Symlink(filepath.Join(e.dir, "volumes/other"), filepath.Join(dir, "link")))
	if _, _, err := e.Provision(t.Context(), o); err == nil || !strings.Contains(err.Error(), "is there and is not empty") {
		t.Errorf("a used directory is taken: %v", err)
	}
	for range 2 {
		must(t, e.Delete(t.Context(), pv))
		left, err := os.ReadDir(filepath.Join(e.dir, "volumes"))
		must(t, err)
		if len(left) != 1 || left[0].Name() != "other" {
			t.Errorf("left over: %v", left)
		}
	}
}

// The other forms of a volume.
func TestVolume(t *testing.T) {
	e := newEnv(t, server.SquashNone)
	o := options("transport", "tcp")
	retain := corev1.PersistentVolumeReclaimRetain
	o.StorageClass.ReclaimPolicy = &retain
	pv, _, err := e.Provision(t.Context(), o)
	must(t, err)
	if s := pv.Spec.NFS; s.Server != "fd00::7" || s.Path != "/"+o.PVName || !slices.Equal(pv.Spec.MountOptions, []string{"vers=4.2", "proto=tcp6", "port=2049"}) {
		t.Errorf("the volume is %+v with options %q", s, pv.Spec.MountOptions)
	}
	if pv.Spec.PersistentVolumeReclaimPolicy != retain {
		t.Errorf("reclaim policy %s", pv.Spec.PersistentVolumeReclaimPolicy)
	}
	info, err := os.Stat(filepath.Join(e.dir, o.PVName))
	must(t, err)
	if info.Mode().Perm() != 0o777 {
		t.Errorf("mode %o", info.Mode())
	}
}

// With the operator's user mapped to nobody, a directory that nobody may write does as parent.
func TestSquashed(t *testing.T) {
	e := newEnv(t, server.SquashAll)
	must(t, os.Chmod(e.dir, 0o755))
	if _, state, err := e.Provision(t.Context(), options()); !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "squash: None") || state != controller.ProvisioningFinished {
		t.Errorf("state %s, error %v, must name squash None", state, err)
	}
	must(t, os.Chmod(e.dir, 0o777))
	_, _, err := e.Provision(t.Context(), options())
	must(t, err)
	// It cannot give directories away. The library asks until somebody removes the directory.
	must(t, os.RemoveAll(filepath.Join(e.dir, "pvc-"+claimUID)))
	if _, _, err := e.Provision(t.Context(), options("uid", "1000")); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("error %v", err)
	}
}

// A name that is not ours is neither taken nor followed.
func TestForeignNames(t *testing.T) {
	e := newEnv(t, server.SquashNone)
	outside := t.TempDir()
	must(t, os.WriteFile(filepath.Join(outside, "keep"), nil, 0o600))
	must(t, os.Mkdir(filepath.Join(outside, "pvc-"+claimUID), 0o700))
	must(t, os.Mkdir(filepath.Join(e.dir, "inside"), 0o700))
	for name, prepare := range map[string]struct {
		link, target, parent, words string
	}{
		"a link in place of the directory":      {"pvc-" + claimUID, "inside", "/", "is no directory"},
		"a link in place of the parent":         {"volumes", "inside", "/volumes", `"volumes" is no directory`},
		"a link out of the export, as a parent": {"volumes", outside, "/volumes", `"volumes" is no directory`},
		"no parent":                             {"other", "inside", "/volumes", "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			link := filepath.Join(e.dir, prepare.link)
			must(t, os.Symlink(prepare.target, link))
			_, state, err := e.Provision(t.Context(), options("parent", prepare.parent))
			if err == nil || !strings.Contains(err.Error(), prepare.words) || state == controller.ProvisioningFinished {
				t.Errorf("state %s, error %v, must be %q", state, err, prepare.words)
			}
			pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-" + claimUID, Annotations: map[string]string{AnnotationExport: "storage/data"}}}
			pv.Spec.NFS = &corev1.NFSVolumeSource{Server: "192.0.2.7", Path: filepath.Join(prepare.parent, pv.Name)}
			if err := e.Delete(t.Context(), pv); prepare.parent != "/" && err == nil {
				t.Error("a volume is deleted whose parent is missing")
			}
			if err := os.Remove(link); err != nil && prepare.parent != "/" {
				t.Error(err)
			}
			for _, kept := range []string{filepath.Join(outside, "keep"), filepath.Join(outside, pv.Name), filepath.Join(e.dir, "inside")} {
				if _, err := os.Stat(kept); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// Volumes that were changed, or whose export is gone, are left alone.
func TestDeleteRefused(t *testing.T) {
	e := newEnv(t, server.SquashNone)
	o := options()
	pv, _, err := e.Provision(t.Context(), o)
	must(t, err)
	for name, c := range map[string]struct {
		change func(*corev1.PersistentVolume)
		words  string
	}{
		"another path":  {func(pv *corev1.PersistentVolume) { pv.Spec.NFS.Path = "/" }, "spec.nfs.path"},
		"a longer path": {func(pv *corev1.PersistentVolume) { pv.Spec.NFS.Path += "/.." }, "spec.nfs.path"},
		"dots":          {func(pv *corev1.PersistentVolume) { pv.Spec.NFS.Path = "/x/../" + pv.Name }, "spec.nfs.path"},
		"another name":  {func(pv *corev1.PersistentVolume) { pv.Name = "data"; pv.Spec.NFS.Path = "/data" }, "spec.nfs.path"},
		"another kind":  {func(pv *corev1.PersistentVolume) { pv.Spec.NFS = nil }, "spec.nfs"},
		"no export":     {func(pv *corev1.PersistentVolume) { delete(pv.Annotations, AnnotationExport) }, "metadata.annotations[sluice.dev/export]"},
		"export gone":   {func(pv *corev1.PersistentVolume) { pv.Annotations[AnnotationExport] = "storage/gone" }, "there is no NFSExport storage/gone"},
	} {
		changed := pv.DeepCopy()
		c.change(changed)
		if err := e.Delete(t.Context(), changed); err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: error %v, must name %q", name, err, c.words)
		}
	}
	if _, err := os.Stat(filepath.Join(e.dir, o.PVName)); err != nil {
		t.Error(err)
	}
}

// Until the export can be used, claims wait, and the error says why.
func TestNotYet(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*env)
		words  string
	}{
		"no export": {func(e *env) { e.export = nil }, "parameters.export: there is no NFSExport storage/data"},
		"no status": {func(e *env) { e.export.Status = v1alpha1.NFSExportStatus{} }, "its status has no address"},
		"not ready": {func(e *env) {
			e.export.Status = v1alpha1.NFSExportStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: "PodsPending", Message: "wait"}}}
		}, "cannot be mounted yet: PodsPending: wait"},
		"no ready pod": {func(e *env) { e.pods = e.pods[:1] }, "has no ready pod"},
		"dead pod":     {func(e *env) { e.port = 1 }, "connect to NFSExport storage/data"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, server.SquashNone)
			c.change(e)
			_, state, err := e.Provision(t.Context(), options())
			if err == nil || !strings.Contains(err.Error(), c.words) || state != controller.ProvisioningNoChange {
				t.Errorf("state %s, error %v, must be %q", state, err, c.words)
			}
		})
	}
}

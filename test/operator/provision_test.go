//go:build operator

package operator

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/controllers"
	"sluice.dev/sluice/internal/operator/provisioner"
)

// newClass makes a StorageClass of the export, until the test ends.
func newClass(t *testing.T, x *v1alpha1.NFSExport, name string, policy corev1.PersistentVolumeReclaimPolicy, parameters ...string) string {
	t.Helper()
	c := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: x.Namespace + "-" + name}, Provisioner: provisioner.Name, ReclaimPolicy: &policy,
		Parameters: map[string]string{"export": x.Namespace + "/" + x.Name}}
	for pair := range slices.Chunk(parameters, 2) {
		c.Parameters[pair[0]] = pair[1]
	}
	must(t, kube.Create(t.Context(), c))
	t.Cleanup(func() { _ = kube.Delete(context.Background(), c) })
	return c.Name
}

// newVolumeClaim makes a claim of a StorageClass. The annotation is that of Kubernetes' own
// controller, which does not run here.
func newVolumeClaim(t *testing.T, namespace, class, name string) *corev1.PersistentVolumeClaim {
	t.Helper()
	c := newClaim(namespace, name)
	c.Spec.StorageClassName = &class
	c.Annotations = map[string]string{"volume.kubernetes.io/storage-provisioner": provisioner.Name}
	must(t, kube.Create(t.Context(), c))
	return c
}

// volumeOf waits for the volume of a claim.
func volumeOf(t *testing.T, c *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	t.Helper()
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-" + string(c.UID)}}
	eventually(t, "claim "+c.Name+" has a volume", func() error {
		return kube.Get(t.Context(), client.ObjectKeyFromObject(pv), pv)
	})
	t.Cleanup(func() {
		pv.Finalizers = nil
		pv.ResourceVersion = ""
		_ = kube.Update(context.Background(), pv)
		_ = kube.Delete(context.Background(), pv)
	})
	return pv
}

// release deletes a claim and releases its volume, in place of Kubernetes' own controllers.
func release(t *testing.T, c *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
	t.Helper()
	must(t, kube.Delete(t.Context(), c))
	change(t, pv, func(pv *corev1.PersistentVolume) {
		pv.Finalizers = slices.DeleteFunc(pv.Finalizers, func(f string) bool { return f == "kubernetes.io/pv-protection" })
	})
	eventually(t, pv.Name+" is released", func() error {
		if err := kube.Get(t.Context(), client.ObjectKeyFromObject(pv), pv); err != nil {
			return err
		}
		pv.Status.Phase = corev1.VolumeReleased
		return kube.Status().Update(t.Context(), pv)
	})
}

// event waits for an event about an object with these words.
func event(t *testing.T, about client.Object, namespace, words string) {
	t.Helper()
	eventually(t, "an event of "+about.GetName(), func() error {
		var all corev1.EventList
		if err := kube.List(t.Context(), &all, client.InNamespace(namespace)); err != nil {
			return err
		}
		var notes []string
		for _, e := range all.Items {
			if e.InvolvedObject.UID != about.GetUID() {
				continue
			}
			if notes = append(notes, e.Message); strings.Contains(e.Message, words) {
				return nil
			}
		}
		return fmt.Errorf("events %q, must be one of %q", notes, words)
	})
}

// TestProvisioner: a claim of a StorageClass gets a directory of an export, by a gateway pod that
// admits the operator's address alone, and its volume's end removes the directory or keeps it.
func TestProvisioner(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	startNodes(t, ns)
	start(t, ns, false, nil, func(o *controllers.Options) { o.Provisioner = []netip.Addr{netip.MustParseAddr("127.0.0.1")} })
	dir := t.TempDir()
	files, err := startServer(dir)
	must(t, err)
	t.Cleanup(files.stop)
	volumes := filepath.Join(dir, "volume/volumes")
	must(t, os.MkdirAll(volumes, 0o755))

	x := newExport(ns, "data", "fast")
	x.Spec.Backend.NFS.Port, x.Spec.Backend.NFS.MountPort = int32(files.port), int32(files.port)
	x.Spec.Access = []v1alpha1.AccessRule{{From: v1alpha1.AccessFrom{Provisioner: true}, Mode: "ReadOnly", Squash: "None"}}
	deletes := newClass(t, x, "deletes", corev1.PersistentVolumeReclaimDelete, "parent", "/volumes", "mode", "0750", "gid", "77")
	keeps := newClass(t, x, "keeps", corev1.PersistentVolumeReclaimRetain, "transport", "tcp")
	spoilt := newClass(t, x, "spoilt", corev1.PersistentVolumeReclaimDelete, "transport", "udp")

	first := newVolumeClaim(t, ns, deletes, "first")
	event(t, first, ns, "parameters.export: there is no NFSExport "+ns+"/data")
	event(t, newVolumeClaim(t, ns, spoilt, "spoilt"), ns, `parameters.transport: "udp": want rdma (the default) or tcp`)
	must(t, kube.Create(t.Context(), newGateway(ns, "fast")))
	must(t, kube.Create(t.Context(), x))
	eventually(t, "the export is ready", isReady(x))
	event(t, first, ns, "mode: ReadWrite, squash: None")
	change(t, x, func(x *v1alpha1.NFSExport) { x.Spec.Access[0].Mode = "ReadWrite" })

	pv, second := volumeOf(t, first), newVolumeClaim(t, ns, keeps, "second")
	kept := volumeOf(t, second)
	for _, v := range []struct {
		*corev1.PersistentVolume
		claim     *corev1.PersistentVolumeClaim
		path      string
		transport string
		policy    corev1.PersistentVolumeReclaimPolicy
	}{{pv, first, "/volumes/" + pv.Name, "proto=rdma", corev1.PersistentVolumeReclaimDelete}, {kept, second, "/" + kept.Name, "proto=tcp", corev1.PersistentVolumeReclaimRetain}} {
		if s := v.Spec.NFS; s == nil || s.Server != x.Status.Address || s.Path != v.path || !slices.Contains(v.Spec.MountOptions, v.transport) ||
			v.Spec.PersistentVolumeReclaimPolicy != v.policy || v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID != v.claim.UID || v.Spec.Capacity.Storage().String() != "1Gi" {
			t.Errorf("the volume of %s is %+v", v.claim.Name, v.Spec)
		}
	}
	info, err := os.Stat(filepath.Join(volumes, pv.Name))
	must(t, err)
	if info.Mode().Perm() != 0o750 {
		t.Errorf("the directory has mode %o", info.Mode())
	}
	outside := filepath.Join(dir, "volume/outside")
	must(t, os.MkdirAll(filepath.Join(outside, "keep"), 0o755))
	must(t, os.MkdirAll(filepath.Join(volumes, pv.Name, "a/b/c"), 0o700))
	must(t, os.WriteFile(filepath.Join(volumes, pv.Name, "a/file"), []byte("data"), 0o600))
	must(t, os.Symlink("../../outside", filepath.Join(volumes, pv.Name, "link")))

	release(t, second, kept)
	release(t, first, pv)
	eventually(t, "the volume is gone", gone(pv))
	if _, err := os.Stat(filepath.Join(volumes, pv.Name)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the volume's directory: %v", err)
	}
	if _, err := os.Stat(filepath.Join(outside, "keep")); err != nil {
		t.Errorf("beside the volume: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "volume", kept.Name)); err != nil {
		t.Errorf("the volume with reclaim policy Retain: %v", err)
	}
	must(t, kube.Get(t.Context(), client.ObjectKeyFromObject(kept), kept))
}

// Package provisioner makes volumes for claims of StorageClasses: directories of an NFSExport,
// which nodes mount with the kernel's NFS client. It speaks NFS to the export's pods itself and
// mounts nothing.
//
// The library sig-storage-lib-external-provisioner watches claims and volumes, and calls Provision
// and Delete.
package provisioner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/report"
	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/nfs3"
)

// Name is the provisioner of StorageClasses.
const Name = "sluice.dev/nfs"

// AnnotationExport names the NFSExport of a PersistentVolume: NAMESPACE/NAME.
const AnnotationExport = "sluice.dev/export"

// Limits of one attempt. The library tries again.
const (
	provisionTimeout = time.Minute
	deleteTimeout    = 10 * time.Minute // a removal goes on where the last attempt ended
	closeTimeout     = 5 * time.Second
)

// Provisioner implements the library's interface.
type Provisioner struct {
	reader kube.Reader
	pool   *bufpool.Pool
}

// New returns a provisioner. reader reads NFSExports, and Services and Pods of the operator.
func New(reader kube.Reader) *Provisioner {
	return &Provisioner{reader: reader, pool: bufpool.New(0)}
}

var _ controller.Provisioner = (*Provisioner)(nil)

// Provision makes the directory of a claim, and returns its volume. It may be called again at any
// time.
func (p *Provisioner) Provision(ctx context.Context, o controller.ProvisionOptions) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	ctx, cancel := context.WithTimeout(ctx, provisionTimeout)
	defer cancel()
	v, err := p.volume(ctx, &o)
	if err != nil {
		return nil, controller.ProvisioningNoChange, err
	}
	if state, err := p.makeDir(ctx, v, o.PVName); err != nil {
		return nil, state, err
	}
	return v.object(&o), controller.ProvisioningFinished, nil
}

// volume is a directory of an export, to be made.
type volume struct {
	*class
	export *v1alpha1.NFSExport
	server string
	mount  []string // options
}

// volume checks class and claim, and finds the export.
func (p *Provisioner) volume(ctx context.Context, o *controller.ProvisionOptions) (*volume, error) {
	if !volumeName.MatchString(o.PVName) {
		return nil, fmt.Errorf("the name of the volume is %q, must be pvc-UID", o.PVName)
	}
	c, err := parseClass(o.StorageClass)
	if err != nil {
		return nil, err
	}
	if err := checkClaim(o.PVC); err != nil {
		return nil, err
	}
	v := &volume{class: c}
	if v.export, err = p.export(ctx, c.export); err != nil {
		return nil, fmt.Errorf("parameters.export: %w", err)
	}
	s := &v.export.Status
	line := s.Mount
	if c.transport == tcp {
		line = s.MountTCP
	}
	m, ok := report.ParseMount(line)
	if !ok {
		return nil, fmt.Errorf("parameters.export: NFSExport %s cannot be mounted yet: %s", c.export, notReady(s))
	}
	v.server, v.mount = m.Server, append(slices.Clone(m.Options), c.options...)
	return v, nil
}

func (p *Provisioner) export(ctx context.Context, name types.NamespacedName) (*v1alpha1.NFSExport, error) {
	x := &v1alpha1.NFSExport{}
	err := p.reader.Get(ctx, name, x)
	if apierrors.IsNotFound(err) {
		return nil, errNoExport{name}
	}
	return x, err
}

// errNoExport is the error for a missing NFSExport.
type errNoExport struct{ types.NamespacedName }

func (e errNoExport) Error() string { return fmt.Sprintf("there is no NFSExport %s", e.NamespacedName) }

// notReady returns the reason why an export cannot be mounted.
func notReady(s *v1alpha1.NFSExportStatus) string {
	if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady); c != nil && c.Status != metav1.ConditionTrue {
		return fmt.Sprintf("%s: %s", c.Reason, c.Message)
	}
	return "its status has no address or no version of NFS"
}

// makeDir makes the directory. The state after an error says whether there may be a directory: then
// the library calls again, even if the claim is deleted meanwhile, so that nothing stays behind.
func (p *Provisioner) makeDir(ctx context.Context, v *volume, name string) (controller.ProvisioningState, error) {
	t, err := p.open(ctx, v.export)
	if err != nil {
		return controller.ProvisioningNoChange, err
	}
	defer t.close()
	parent, err := t.dir(ctx, v.parent)
	if err != nil {
		return controller.ProvisioningNoChange, fmt.Errorf("parameters.parent: %q: want an existing directory of NFSExport %s: %w%s", v.parent, v.class.export, err, hint(err))
	}
	if err = t.makeDir(ctx, parent, name, v.attrs); err == nil {
		return controller.ProvisioningFinished, nil
	}
	err = fmt.Errorf("make directory %s of NFSExport %s: %w%s", path.Join(v.parent, name), v.class.export, err, hint(err))
	if _, e := t.Lookup(ctx, parent, name); errors.Is(e, fs.ErrNotExist) {
		return controller.ProvisioningFinished, err
	}
	return controller.ProvisioningInBackground, err
}

// object returns the PersistentVolume.
func (v *volume) object(o *controller.ProvisionOptions) *corev1.PersistentVolume {
	policy := corev1.PersistentVolumeReclaimDelete
	if o.StorageClass.ReclaimPolicy != nil {
		policy = *o.StorageClass.ReclaimPolicy
	}
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: o.PVName, Annotations: map[string]string{AnnotationExport: v.class.export.String()}},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: policy,
			AccessModes:                   o.PVC.Spec.AccessModes,
			VolumeMode:                    o.PVC.Spec.VolumeMode,
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: o.PVC.Spec.Resources.Requests[corev1.ResourceStorage]},
			MountOptions:                  v.mount,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: v.server, Path: path.Join(v.parent, o.PVName)}},
		},
	}
}

// volumeName matches the names of volumes and of their directories. The UID of the claim makes them
// unique for all time.
var volumeName = regexp.MustCompile(`^pvc-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// Delete removes the directory of a volume with all in it. The library has checked that the volume
// is ours, that nobody uses it, and that its reclaim policy is Delete.
func (p *Provisioner) Delete(ctx context.Context, pv *corev1.PersistentVolume) error {
	ctx, cancel := context.WithTimeout(ctx, deleteTimeout)
	defer cancel()
	parent, name, err := directory(pv)
	if err != nil {
		return err
	}
	x, err := p.exportOf(ctx, pv)
	if err != nil {
		return err
	}
	t, err := p.open(ctx, x)
	if err != nil {
		return err
	}
	defer t.close()
	var dir nfs3.Handle
	if dir, err = t.dir(ctx, parent); err == nil {
		err = t.RemoveAll(ctx, dir, name)
	}
	if err != nil {
		return fmt.Errorf("remove directory %s of NFSExport %s/%s: %w%s", pv.Spec.NFS.Path, x.Namespace, x.Name, err, hint(err))
	}
	return nil
}

// directory returns the directory of a volume, and its parent. A volume of another form, as after a
// change by hand, is refused.
func directory(pv *corev1.PersistentVolume) (parent, name string, err error) {
	s := pv.Spec.NFS
	if s == nil {
		return "", "", errors.New("spec.nfs: the volume has none, so it is not of this provisioner")
	}
	parent, name = path.Split(s.Path)
	if name != pv.Name || !volumeName.MatchString(name) || !path.IsAbs(s.Path) || path.Clean(s.Path) != s.Path {
		return "", "", fmt.Errorf("spec.nfs.path: %.1000q: want the directory PARENT/%s, as the provisioner made it", s.Path, pv.Name)
	}
	return parent, name, nil
}

// exportOf returns the NFSExport of a volume.
func (p *Provisioner) exportOf(ctx context.Context, pv *corev1.PersistentVolume) (*v1alpha1.NFSExport, error) {
	name, err := parseExport(pv.Annotations[AnnotationExport])
	if err != nil {
		return nil, fmt.Errorf("metadata.annotations[%s]: %q: want NAMESPACE/NAME of the volume's NFSExport", AnnotationExport, pv.Annotations[AnnotationExport])
	}
	x, err := p.export(ctx, name)
	if errors.As(err, &errNoExport{}) {
		return nil, fmt.Errorf("%w: create it again, or remove directory %s of its backend by hand, set persistentVolumeReclaimPolicy to Retain, and delete the volume", err, pv.Spec.NFS.Path)
	}
	return x, err
}

package provisioner

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"sluice.dev/sluice/pkg/nfs/nfs3"
)

// Parameters of a StorageClass.
const (
	paramExport    = "export"
	paramParent    = "parent"
	paramTransport = "transport"
	paramMode      = "mode"
	paramUID       = "uid"
	paramGID       = "gid"
)

// transports of a StorageClass.
const (
	rdma = "rdma"
	tcp  = "tcp"
)

// maxParent bounds the bytes of parent. A volume's path, with the name of its directory, has to fit
// into a path of MOUNT (nfs3.MaxMountPath).
const maxParent = 900

// class is the meaning of a StorageClass.
type class struct {
	export    types.NamespacedName
	parent    string // absolute and clean
	transport string
	attrs     nfs3.SetAttrs // of the directories
	options   []string      // of mounts, in addition to the export's
}

// parseClass checks a StorageClass. An error names the field.
func parseClass(c *storagev1.StorageClass) (*class, error) {
	for _, key := range slices.Sorted(maps.Keys(c.Parameters)) {
		switch key {
		case paramExport, paramParent, paramTransport, paramMode, paramUID, paramGID:
		default:
			return nil, fmt.Errorf("parameters: %q is unknown: want export, and optionally parent, transport, mode, uid and gid", key)
		}
	}
	if len(c.AllowedTopologies) > 0 {
		return nil, fmt.Errorf("allowedTopologies: has %d entries: want none, since all nodes reach an export", len(c.AllowedTopologies))
	}
	out := &class{attrs: nfs3.SetAttrs{SetMode: true, Mode: 0o777}}
	var err error
	if out.export, err = parseExport(c.Parameters[paramExport]); err != nil {
		return nil, err
	}
	if out.parent, err = parseParent(c.Parameters); err != nil {
		return nil, err
	}
	switch out.transport = c.Parameters[paramTransport]; out.transport {
	case "":
		out.transport = rdma
	case rdma, tcp:
	default:
		return nil, fmt.Errorf("parameters.transport: %q: want rdma (the default) or tcp", out.transport)
	}
	if v, ok := c.Parameters[paramMode]; ok {
		mode, err := strconv.ParseUint(v, 8, 32)
		if err != nil || mode > 0o7777 {
			return nil, fmt.Errorf("parameters.mode: %q: want an octal number from 0 to 7777, such as 0770; default 0777", v)
		}
		out.attrs.Mode = uint32(mode)
	}
	if out.attrs.UID, out.attrs.SetUID, err = parseID(c.Parameters, paramUID); err != nil {
		return nil, err
	}
	if out.attrs.GID, out.attrs.SetGID, err = parseID(c.Parameters, paramGID); err != nil {
		return nil, err
	}
	out.options, err = checkOptions(c.MountOptions)
	return out, err
}

func parseExport(v string) (types.NamespacedName, error) {
	namespace, name, _ := strings.Cut(v, "/")
	if len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Label(name)) > 0 {
		return types.NamespacedName{}, fmt.Errorf("parameters.export: %q: want NAMESPACE/NAME of an NFSExport, such as storage/data", v)
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}

func parseParent(parameters map[string]string) (string, error) {
	v, ok := parameters[paramParent]
	if !ok {
		return "/", nil
	}
	if !path.IsAbs(v) || path.Clean(v) != v || len(v) > maxParent || strings.ContainsRune(v, 0) {
		return "", fmt.Errorf("parameters.parent: %.100q: want the absolute path of a directory in the export, such as /volumes, without '.', '..' and a '/' at the end, and at most %d bytes; default /", v, maxParent)
	}
	return v, nil
}

// parseID returns the number of a user or group, and whether there is one.
func parseID(parameters map[string]string, key string) (uint32, bool, error) {
	v, ok := parameters[key]
	if !ok {
		return 0, false, nil
	}
	// The largest number stands for "no change" in chown(2).
	id, err := strconv.ParseUint(v, 10, 32)
	if err != nil || id > 1<<32-2 {
		return 0, false, fmt.Errorf("parameters.%s: %q: want a number from 0 to 4294967294; default: that of the user who makes the directory", key, v)
	}
	return uint32(id), true, nil
}

// own are mount options that the provisioner sets.
var own = []string{"proto", "rdma", "tcp", "udp", "port", "vers", "v3", "v4", "v4.0", "v4.1", "v4.2", "nfsvers", "minorversion", "mountproto", "mountport", "mountaddr", "addr"}

// checkOptions refuses options that contradict the provisioner's.
func checkOptions(options []string) ([]string, error) {
	for _, o := range options {
		for part := range strings.SplitSeq(o, ",") {
			if name, _, _ := strings.Cut(part, "="); slices.Contains(own, name) {
				return nil, fmt.Errorf("mountOptions: %q: address, port, transport and version follow from the export and parameters.transport: leave it out", part)
			}
		}
	}
	return options, nil
}

// checkClaim refuses claims that ask for more than a new, empty directory.
func checkClaim(c *corev1.PersistentVolumeClaim) error {
	for _, m := range c.Spec.AccessModes {
		switch m {
		case corev1.ReadWriteOnce, corev1.ReadOnlyMany, corev1.ReadWriteMany:
		default:
			return fmt.Errorf("spec.accessModes: %q: want ReadWriteOnce, ReadOnlyMany or ReadWriteMany", m)
		}
	}
	if c.Spec.Selector != nil {
		return fmt.Errorf("spec.selector: a new volume has no labels to select by: leave it out")
	}
	if s := c.Spec.DataSource; s != nil {
		return fmt.Errorf("spec.dataSource: %s %q: snapshots and clones are not supported: leave it out", s.Kind, s.Name)
	}
	if s := c.Spec.DataSourceRef; s != nil {
		return fmt.Errorf("spec.dataSourceRef: %s %q: snapshots and clones are not supported: leave it out", s.Kind, s.Name)
	}
	if v := c.Spec.VolumeAttributesClassName; v != nil && *v != "" {
		return fmt.Errorf("spec.volumeAttributesClassName: %q: want none", *v)
	}
	return nil
}

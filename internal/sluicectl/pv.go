package sluicectl

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v4"
)

// maxManifest is the limit of an NFSExport's bytes.
const maxManifest = 2 << 20

// nfsExport has the required fields of the resource.
type nfsExport struct {
	APIVersion string   `yaml:"apiVersion"`
	Kind       string   `yaml:"kind"`
	Metadata   metadata `yaml:"metadata"`
	Spec       struct {
		Access []accessRule `yaml:"access"`
	} `yaml:"spec"`
	Status struct {
		Mount      string `yaml:"mount"`
		MountTCP   string `yaml:"mountTCP"`
		Conditions []struct {
			Type    string `yaml:"type"`
			Status  string `yaml:"status"`
			Reason  string `yaml:"reason"`
			Message string `yaml:"message"`
		} `yaml:"conditions"`
	} `yaml:"status"`
}

type accessRule struct {
	Mode string `yaml:"mode"`
}

// The output: Kubernetes' own kinds, reduced to the required fields.
type (
	object struct {
		APIVersion string   `yaml:"apiVersion"`
		Kind       string   `yaml:"kind"`
		Metadata   metadata `yaml:"metadata"`
		Spec       any      `yaml:"spec"`
	}
	metadata struct {
		Namespace string `yaml:"namespace,omitempty"`
		Name      string `yaml:"name"`
	}
	volumeSpec struct {
		Capacity         storage   `yaml:"capacity"`
		AccessModes      []string  `yaml:"accessModes"`
		ReclaimPolicy    string    `yaml:"persistentVolumeReclaimPolicy"`
		StorageClassName string    `yaml:"storageClassName"`
		ClaimRef         metadata  `yaml:"claimRef"`
		MountOptions     []string  `yaml:"mountOptions"`
		NFS              nfsSource `yaml:"nfs"`
	}
	storage struct {
		Storage string `yaml:"storage"`
	}
	nfsSource struct {
		Server string `yaml:"server"`
		Path   string `yaml:"path"`
	}
	claimSpec struct {
		AccessModes      []string  `yaml:"accessModes"`
		StorageClassName string    `yaml:"storageClassName"`
		VolumeName       string    `yaml:"volumeName"`
		Resources        resources `yaml:"resources"`
	}
	resources struct {
		Requests storage `yaml:"requests"`
	}
	podSpec struct {
		Containers []container `yaml:"containers"`
		Volumes    []volume    `yaml:"volumes"`
	}
	container struct {
		Name         string        `yaml:"name"`
		Image        string        `yaml:"image"`
		Command      []string      `yaml:"command"`
		VolumeMounts []volumeMount `yaml:"volumeMounts"`
	}
	volumeMount struct {
		Name      string `yaml:"name"`
		MountPath string `yaml:"mountPath"`
		ReadOnly  bool   `yaml:"readOnly,omitempty"`
	}
	volume struct {
		Name  string      `yaml:"name"`
		Claim claimSource `yaml:"persistentVolumeClaim"`
	}
	claimSource struct {
		Name     string `yaml:"claimName"`
		ReadOnly bool   `yaml:"readOnly,omitempty"`
	}
)

type pvOptions struct {
	tcp, pod            bool
	namespace, capacity string
}

func (a *app) pvCommand() *cobra.Command {
	var o pvOptions
	c := &cobra.Command{
		Use:   "pv FILE|-",
		Short: "Print a PersistentVolume and its claim for an NFSExport",
		Long: "pv prints a PersistentVolume and a PersistentVolumeClaim for an NFSExport, which it reads, with its status, from a file or from standard input:\n\n" +
			"  kubectl get nfsexport data -o yaml | sluicectl pv - | kubectl apply -f -",
		Args: exactly(1),
		RunE: func(_ *cobra.Command, args []string) error {
			in := a.In
			if args[0] != "-" {
				f, err := os.Open(args[0])
				if err != nil {
					return err
				}
				defer f.Close() //nolint:errcheck // it was only read
				in = f
			}
			b, err := io.ReadAll(io.LimitReader(in, maxManifest+1))
			if err != nil {
				return err
			}
			out, err := persistentVolume(b, o)
			if err != nil {
				return err
			}
			_, err = a.Out.Write(out)
			return err
		},
	}
	o.flags(c.Flags(), "namespace")
	return c
}

// flags adds the flags of pv; namespace is the name of the one for the claim's.
func (o *pvOptions) flags(f *pflag.FlagSet, namespace string) {
	f.BoolVar(&o.tcp, "tcp", false, "mount over TCP, for nodes without RDMA")
	f.BoolVar(&o.pod, "pod", false, "print a pod that uses the claim, too")
	f.StringVar(&o.namespace, namespace, "", "`NAMESPACE` of the claim; unsaid, the export's")
	f.StringVar(&o.capacity, "capacity", "1Ti", "`SIZE` of volume and claim; nothing depends on it")
}

// persistentVolume returns the manifests for an NFSExport in YAML or JSON.
func persistentVolume(manifest []byte, o pvOptions) ([]byte, error) {
	x, err := readExport(manifest)
	if err != nil {
		return nil, err
	}
	line, err := x.mountLine(o.tcp)
	if err != nil {
		return nil, err
	}
	name, claim := x.Metadata.Namespace+"-"+x.Metadata.Name, x.Metadata
	if o.namespace != "" && o.namespace != claim.Namespace {
		if !label.MatchString(o.namespace) {
			return nil, fmt.Errorf("--namespace %q: want the name of a namespace", o.namespace)
		}
		claim.Namespace = o.namespace
		name += "-" + o.namespace // a volume belongs to one claim
	}
	if !capacity.MatchString(o.capacity) {
		return nil, fmt.Errorf("--capacity %q: want a size such as 500Gi or 1Ti", o.capacity)
	}
	readOnly := !slices.ContainsFunc(x.Spec.Access, func(r accessRule) bool { return r.Mode == "ReadWrite" })
	modes, options := []string{"ReadWriteMany"}, line.options
	if readOnly {
		modes, options = []string{"ReadOnlyMany"}, append(slices.Clone(options), "ro")
	}
	objects := []object{
		{"v1", "PersistentVolume", metadata{Name: name}, volumeSpec{
			Capacity: storage{o.capacity}, AccessModes: modes, ReclaimPolicy: "Retain", ClaimRef: claim, MountOptions: options, NFS: nfsSource{line.server, "/"},
		}},
		{"v1", "PersistentVolumeClaim", claim, claimSpec{AccessModes: modes, VolumeName: name, Resources: resources{storage{o.capacity}}}},
	}
	if o.pod {
		objects = append(objects, object{"v1", "Pod", claim, podSpec{
			Containers: []container{{
				Name: "shell", Image: "busybox", Command: []string{"sh", "-c", "df /data; ls -l /data; sleep infinity"},
				VolumeMounts: []volumeMount{{"data", "/data", readOnly}},
			}},
			Volumes: []volume{{"data", claimSource{claim.Name, readOnly}}},
		}})
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "# By hand: %s\n", line)
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	for _, obj := range objects {
		if err := e.Encode(obj); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), e.Close()
}

// capacity matches sizes, and label the names of namespaces and exports.
var (
	capacity = regexp.MustCompile(`^[1-9][0-9]{0,17}([KMGTPE]i|[kMGTPE])?$`)
	label    = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
)

func readExport(manifest []byte) (*nfsExport, error) {
	if len(manifest) > maxManifest {
		return nil, fmt.Errorf("the file has more than %d bytes: want one NFSExport", maxManifest)
	}
	var x nfsExport
	if err := yaml.Unmarshal(manifest, &x); err != nil {
		return nil, fmt.Errorf("not the YAML or JSON of an NFSExport: %w", err)
	}
	if x.Kind != "NFSExport" || !strings.HasPrefix(x.APIVersion, "sluice.dev/") {
		return nil, fmt.Errorf("kind %q of %q: want one NFSExport of sluice.dev, as kubectl get nfsexport NAME -o yaml prints it", x.Kind, x.APIVersion)
	}
	for _, n := range []struct{ field, value string }{{"name", x.Metadata.Name}, {"namespace", x.Metadata.Namespace}} {
		if !label.MatchString(n.value) {
			return nil, fmt.Errorf("metadata.%s: %q: want the %s of an NFSExport, as kubectl prints it", n.field, n.value, n.field)
		}
	}
	return &x, nil
}

// mountLine is a mount command of the status, parsed.
type mountLine struct {
	options []string
	server  string // without brackets
}

// mountLine returns the export's mount command. If the export cannot be mounted, the error has the
// status's reason.
func (x *nfsExport) mountLine(tcp bool) (*mountLine, error) {
	field, text := "status.mount", x.Status.Mount
	if tcp {
		field, text = "status.mountTCP", x.Status.MountTCP
	}
	if text == "" {
		why := "it has no status: is the operator running, and was the export read from the cluster?"
		for _, c := range x.Status.Conditions {
			if c.Type == "Ready" && c.Status != "True" {
				why = fmt.Sprintf("it is not ready (%s): %s", c.Reason, c.Message)
			}
		}
		return nil, fmt.Errorf("NFSExport %s/%s has no %s: %s", x.Metadata.Namespace, x.Metadata.Name, field, why)
	}
	words := strings.Fields(text)
	bad := fmt.Errorf("%s: %q: want mount -t nfs -o OPTIONS ADDRESS:/ DIRECTORY", field, text)
	if len(words) != 7 || !slices.Equal(words[:4], []string{"mount", "-t", "nfs", "-o"}) {
		return nil, bad
	}
	server, ok := strings.CutSuffix(words[5], ":/")
	if !ok || server == "" {
		return nil, bad
	}
	return &mountLine{strings.Split(words[4], ","), strings.Trim(server, "[]")}, nil
}

// target returns the server of the line. Its options have proto and port.
func (l *mountLine) target(tcp bool) (*target, error) {
	port := ""
	for _, o := range l.options {
		if p, ok := strings.CutPrefix(o, "port="); ok {
			port = p
		}
	}
	scheme := schemeRDMA
	if tcp {
		scheme = schemeTCP
	}
	return parseTarget(scheme + "://" + net.JoinHostPort(l.server, port) + "/")
}

func (l *mountLine) String() string {
	server := l.server
	if strings.Contains(server, ":") {
		server = "[" + server + "]"
	}
	return fmt.Sprintf("mount -t nfs -o %s %s:/ /mnt", strings.Join(l.options, ","), server)
}

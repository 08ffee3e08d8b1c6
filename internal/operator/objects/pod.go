package objects

import (
	"cmp"
	"encoding/json"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/plan"
)

// podTemplate returns a workload's pods, without the name of their ConfigMap. No export is in it but a claim's own, so that no change of exports
// restarts a pod.
func podTemplate(g *v1alpha1.NFSGateway, w *plan.Workload, d *Defaults) corev1.PodTemplateSpec {
	gatewayImage, speakerImage := images(g, d)
	t := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{}},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken:  new(false),
			EnableServiceLinks:            new(false),
			TerminationGracePeriodSeconds: new(int64((plan.DrainTimeout(g) + stopMargin + time.Second - 1) / time.Second)),
			SecurityContext:               podSecurity(g, w),
			Containers:                    []corev1.Container{gatewayContainer(g, w, gatewayImage)},
			Volumes:                       volumes(g, w),
		},
	}
	if w.Claim == nil {
		t.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway,
			LabelSelector: &metav1.LabelSelector{MatchLabels: podsOf(g, w.Name)}, MatchLabelKeys: []string{"pod-template-hash"},
		}}
	}
	if virtual(g) {
		t.Spec.ServiceAccountName = serviceAccountName(g)
		t.Spec.InitContainers = []corev1.Container{speakerContainer(g, speakerImage)}
		t.Spec.Volumes = append(t.Spec.Volumes, token())
	}
	if r := g.Spec.RDMA; r != nil && len(r.Networks) > 0 {
		t.Annotations = map[string]string{NetworksAnnotation: networks(g)}
		if r.Verbs != nil {
			t.Annotations[VerbsAnnotation] = hash(r.Verbs)
		}
	}
	if p := g.Spec.PodTemplate; p != nil {
		addTemplate(&t, p)
	}
	maps.Copy(t.Labels, workloadLabels(g, w))
	return t
}

// addTemplate adds what spec.podTemplate says, but for image and resources.
func addTemplate(t *corev1.PodTemplateSpec, p *v1alpha1.PodTemplate) {
	maps.Copy(t.Labels, p.Labels)
	if len(p.Annotations) > 0 {
		all := maps.Clone(p.Annotations)
		maps.Copy(all, t.Annotations)
		t.Annotations = all
	}
	s := &t.Spec
	for _, list := range [][]corev1.Container{s.InitContainers, s.Containers} {
		for i := range list {
			list[i].ImagePullPolicy = p.ImagePullPolicy
		}
	}
	s.ImagePullSecrets, s.NodeSelector, s.Tolerations = p.ImagePullSecrets, p.NodeSelector, p.Tolerations
	s.PriorityClassName, s.RuntimeClassName = p.PriorityClassName, p.RuntimeClassName
}

func gatewayContainer(g *v1alpha1.NFSGateway, w *plan.Workload, image string) corev1.Container {
	c := corev1.Container{
		Name: GatewayContainer, Image: image,
		Args:            []string{"--config", plan.ConfigDir + "/" + GatewayFile},
		Ports:           []corev1.ContainerPort{{Name: plan.PortAdmin, ContainerPort: plan.AdminPort, Protocol: corev1.ProtocolTCP}},
		ReadinessProbe:  probe("/readyz", plan.AdminPort, 1, 2),
		LivenessProbe:   probe("/healthz", plan.AdminPort, 10, 6),
		Resources:       resources(g),
		SecurityContext: gatewaySecurity(g, w),
		VolumeMounts: []corev1.VolumeMount{
			{Name: ConfigVolume, MountPath: plan.ConfigDir, ReadOnly: true},
			{Name: keysVolume, MountPath: plan.KeysDir, ReadOnly: true},
			{Name: stateVolume, MountPath: plan.StateDir},
		},
	}
	if g.Spec.Exposure.Type != v1alpha1.ExposureVirtualIP {
		// A Service leads to a pod that ends until the probe has failed. A client's SYN that meets nobody then is repeated for two minutes, to that address.
		c.Args = append(c.Args, "--linger", linger.String())
	}
	adminHosts(g, &c)
	if w.Claim != nil {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: claimVolume, MountPath: plan.VolumeDir, SubPath: w.Claim.SubPath})
	}
	return c
}

func podSecurity(g *v1alpha1.NFSGateway, w *plan.Workload) *corev1.PodSecurityContext {
	s := &corev1.PodSecurityContext{
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		// Many NFS servers believe only clients with a port below 1024, which this lets a container without privileges have.
		Sysctls: []corev1.Sysctl{{Name: "net.ipv4.ip_unprivileged_port_start", Value: "0"}},
	}
	if unprivileged(g, w) {
		s.FSGroup = new(int64(nonroot)) // for the keys
	}
	return s
}

func gatewaySecurity(g *v1alpha1.NFSGateway, w *plan.Workload) *corev1.SecurityContext {
	if unprivileged(g, w) {
		return confined(nonroot)
	}
	var add []corev1.Capability
	if w.Claim != nil {
		add = append(add, volumeServer...)
	}
	if g.Spec.Provider == v1alpha1.Verbs {
		add = append(add, "IPC_LOCK") // to register memory
	}
	return confined(0, add...)
}

// volumeServer is what a server needs that acts as its callers and opens files by their handles.
var volumeServer = []corev1.Capability{"CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "MKNOD", "SETGID", "SETUID"}

// unprivileged tells whether the gateway's container runs as nobody in particular. PodSecurity "restricted" admits a pod of such a container alone.
func unprivileged(g *v1alpha1.NFSGateway, w *plan.Workload) bool {
	return g.Spec.Provider != v1alpha1.Verbs && w.Claim == nil
}

// nonroot is the user of pods that need no privileges, and of the images.
const nonroot = 65532

// images are the gateway's and the speaker's.
func images(g *v1alpha1.NFSGateway, d *Defaults) (gateway, speaker string) {
	gateway = d.GatewayImage
	if g.Spec.Provider == v1alpha1.Verbs {
		gateway = d.VerbsImage
	}
	if t := g.Spec.PodTemplate; t != nil {
		gateway = cmp.Or(t.Image, gateway)
	}
	return gateway, d.SpeakerImage
}

// stopMargin is how much longer than the drain a pod may take to end.
const stopMargin = 15 * time.Second

// linger is how long a gateway behind a Service stays after its drain: the readiness probe fails within 2 s, and the nodes' rules follow.
const linger = 5 * time.Second

// VerbsAnnotation identifies the settings of adapters. Exports of a pod share a socket with the
// settings of its start: other settings need new pods.
const VerbsAnnotation = "sluice.dev/verbs"

// NetworksAnnotation is what Multus, and other meta plugins, read: the networks that a pod is attached to.
const NetworksAnnotation = "k8s.v1.cni.cncf.io/networks"

// Names of the containers.
const (
	GatewayContainer = "gateway"
	SpeakerContainer = "speaker"
)

// Names of the volumes in a pod.
const (
	ConfigVolume = "config" // the ConfigMap
	keysVolume   = "keys"
	stateVolume  = "state"
	claimVolume  = "volume"
	tokenVolume  = "token"
)

// adminHosts keeps the admin port of a pod with further networks to the pod's addresses in the cluster and to loopback, where the speaker and port-forwards ask.
func adminHosts(g *v1alpha1.NFSGateway, c *corev1.Container) {
	if g.Spec.RDMA == nil || len(g.Spec.RDMA.Networks) == 0 {
		return
	}
	c.Env = append(c.Env, fieldEnv("POD_IPS", "status.podIPs"))
	c.Args = append(c.Args, "--admin-hosts", "$(POD_IPS),127.0.0.1")
}

// fieldEnv is a variable that has a field of the pod.
func fieldEnv(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}}
}

func probe(path string, port int32, period, failures int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(port)}},
		PeriodSeconds: period, TimeoutSeconds: 3, FailureThreshold: failures,
	}
}

// resources are what the gateway's container asks for. Besides data in flight, which limits.memory bounds, it has receives and connections: as much again, and
// 512 MiB.
func resources(g *v1alpha1.NFSGateway) corev1.ResourceRequirements {
	memory := plan.Memory(g)
	r := corev1.ResourceRequirements{
		Requests: corev1.ResourceList{
			corev1.ResourceCPU:    resource.MustParse("100m"),
			corev1.ResourceMemory: *resource.NewQuantity(256<<20+memory/4, resource.BinarySI),
		},
		Limits: corev1.ResourceList{corev1.ResourceMemory: *resource.NewQuantity(512<<20+2*memory, resource.BinarySI)},
	}
	if t := g.Spec.PodTemplate; t != nil && t.Resources != nil {
		r = *t.Resources.DeepCopy()
	}
	// Extended resources and huge pages are the same in both.
	both := func(name corev1.ResourceName, count *resource.Quantity) {
		for _, list := range []*corev1.ResourceList{&r.Requests, &r.Limits} {
			if *list == nil {
				*list = corev1.ResourceList{}
			}
			(*list)[name] = *count
		}
	}
	if g.Spec.Memory.HugePages {
		const page = 2 << 20
		both(hugePages, resource.NewQuantity((2*memory+page-1)/page*page, resource.BinarySI))
	}
	if g.Spec.RDMA != nil {
		for _, d := range g.Spec.RDMA.Devices {
			both(corev1.ResourceName(d.ResourceName), resource.NewQuantity(int64(max(1, d.Count)), resource.DecimalSI))
		}
	}
	return r
}

// hugePages are those that the arenas of memory for messages and data are made of. They are mapped without a file system.
const hugePages = corev1.ResourceHugePagesPrefix + "2Mi"

func volumes(g *v1alpha1.NFSGateway, w *plan.Workload) []corev1.Volume {
	mode := int32(0o400)
	if unprivileged(g, w) {
		mode = 0o440 // by the pod's fsGroup
	}
	v := []corev1.Volume{
		{Name: ConfigVolume, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}},
		{Name: keysVolume, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName: plan.KeysName(g), DefaultMode: &mode, Items: []corev1.KeyToPath{{Key: plan.KeysEntry, Path: plan.KeysEntry}},
		}}},
		{Name: stateVolume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
	}
	if w.Claim != nil {
		v = append(v, corev1.Volume{Name: claimVolume, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: w.Claim.ClaimName}}})
	}
	return v
}

// networks is the Multus annotation: a list of networks and what their interfaces are called in the pod.
func networks(g *v1alpha1.NFSGateway) string {
	type selection struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
		Interface string `json:"interface"`
	}
	var list []selection
	for _, n := range g.Spec.RDMA.Networks {
		ns, name, _ := strings.Cut(plan.NetworkKey(g, n), "/")
		list = append(list, selection{Name: name, Namespace: ns, Interface: plan.InterfaceOf(n)})
	}
	b, err := json.Marshal(list)
	if err != nil {
		panic(err) // plain strings
	}
	return string(b)
}

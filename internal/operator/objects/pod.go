package objects

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/plan"
)

// podTemplate returns a workload's pods, without the name of their ConfigMap. It depends on no
// export but a claim's own, so that changes of exports restart no pod.
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
	for _, name := range d.PullSecrets {
		t.Spec.ImagePullSecrets = append(t.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
	}
	if virtual(g) {
		t.Spec.ServiceAccountName = serviceAccountName(g)
		t.Spec.InitContainers = []corev1.Container{speakerContainer(g, speakerImage, d.LogFormat)}
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
	t.Spec.TopologySpreadConstraints = spread(g, w)
	maps.Copy(t.Labels, workloadLabels(g, w))
	return t
}

// spread returns the constraints on the distribution of a workload's pods.
func spread(g *v1alpha1.NFSGateway, w *plan.Workload) []corev1.TopologySpreadConstraint {
	var all []corev1.TopologySpreadConstraint
	if p := g.Spec.PodTemplate; p != nil {
		all = slices.Clone(p.TopologySpreadConstraints)
	}
	if len(all) == 0 && w.Claim == nil {
		all = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway}}
	}
	for i := range all {
		if all[i].LabelSelector == nil {
			all[i].LabelSelector = &metav1.LabelSelector{MatchLabels: podsOf(g, w.Name)}
			if w.Claim == nil && all[i].MatchLabelKeys == nil {
				all[i].MatchLabelKeys = []string{"pod-template-hash"} // of a Deployment
			}
		}
	}
	return all
}

// addTemplate adds spec.podTemplate, except image, resources and constraints.
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
	if len(p.ImagePullSecrets) > 0 {
		s.ImagePullSecrets = p.ImagePullSecrets
	}
	s.NodeSelector, s.Tolerations, s.Affinity = p.NodeSelector, p.Tolerations, p.Affinity
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
		// A Service leads clients to an ending pod until its probe has failed. Without a listener,
		// Linux clients repeat a SYN to that pod for two minutes.
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
		// Many NFS servers require a client port below 1024. This opens them to unprivileged
		// containers.
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

// volumeServer are the capabilities to act as callers and to open files by handle.
var volumeServer = []corev1.Capability{"CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "MKNOD", "SETGID", "SETUID"}

// unprivileged reports whether the gateway's container passes PodSecurity "restricted".
func unprivileged(g *v1alpha1.NFSGateway, w *plan.Workload) bool {
	return g.Spec.Provider != v1alpha1.Verbs && w.Claim == nil
}

// nonroot is the user of unprivileged pods, and of the images.
const nonroot = 65532

// images returns the images of the gateway and the speaker.
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

// stopMargin is the time of a pod to end after its drain.
const stopMargin = 15 * time.Second

// linger is the time of a gateway behind a Service to stay after its drain: 2 s until the readiness
// probe fails, and the rest for the nodes' rules.
const linger = 5 * time.Second

// VerbsAnnotation identifies the settings of adapters. Exports of a pod share a socket with the
// settings of its start: other settings need new pods.
const VerbsAnnotation = "sluice.dev/verbs"

// NetworksAnnotation lists the networks of a pod for Multus and other meta plugins.
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

// adminHosts limits the admin port of a pod with further networks to its cluster addresses and
// loopback, for the speaker and port-forwards.
func adminHosts(g *v1alpha1.NFSGateway, c *corev1.Container) {
	if g.Spec.RDMA == nil || len(g.Spec.RDMA.Networks) == 0 {
		return
	}
	c.Env = append(c.Env, fieldEnv("POD_IPS", "status.podIPs"))
	c.Args = append(c.Args, "--admin-hosts", "$(POD_IPS),127.0.0.1")
}

// fieldEnv returns a variable with a field of the pod.
func fieldEnv(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}}
}

func probe(path string, port int32, period, failures int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(port)}},
		PeriodSeconds: period, TimeoutSeconds: 3, FailureThreshold: failures,
	}
}

// resources returns the requests and limits of the gateway's container. The memory limit is twice
// limits.memory, for data in flight and for receives, and 512 MiB.
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

// hugePages hold the arenas of messages and data, mapped without a file system.
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

// networks returns the value of NetworksAnnotation.
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

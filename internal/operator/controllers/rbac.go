package controllers

// The operator's rights: hack/generate makes config/rbac/role.yaml of them. Where single namespaces are watched, those of nodes and namespaces are left out, and
// the others are Roles there.
//
// What it makes it also deletes, but for Secrets: keys outlive their gateway. It reads the Secrets of keys by their names, and lists none. Of pods it writes an
// annotation, and of NFSExports spec.handleIdentity, once. It may do with Leases what it lets speakers do; that by which it elects its leader is another matter:
// config/rbac/leader_election.yaml.
//
// +kubebuilder:rbac:groups=sluice.dev,resources=nfsgateways;nfsexports,verbs=get;list;watch
// +kubebuilder:rbac:groups=sluice.dev,resources=nfsexports,verbs=patch
// +kubebuilder:rbac:groups=sluice.dev,resources=nfsgateways/status;nfsexports/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=configmaps;services;serviceaccounts,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=services/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;create
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=nodes;namespaces;persistentvolumeclaims,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=events,verbs=list;create;patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=apps,resources=deployments;statefulsets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=roles;rolebindings,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=k8s.cni.cncf.io,resources=network-attachment-definitions,verbs=get
// +kubebuilder:rbac:groups=monitoring.coreos.com,resources=servicemonitors;prometheusrules,verbs=get;list;watch;create;patch;delete

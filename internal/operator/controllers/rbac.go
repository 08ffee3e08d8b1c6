package controllers

// The operator's permissions. hack/generate writes config/rbac/role.yaml from them. With
// --watch-namespaces, those for nodes and namespaces are left out, and the others become Roles.
//
// The operator deletes all kinds that it creates, except Secrets: keys outlive their gateway. It
// reads Secrets by name only. It patches annotations of pods, and spec.handleIdentity of
// NFSExports. It needs the same permissions on Leases as the speakers, to grant them. Leader
// election has its own: config/rbac/leader_election.yaml, and so has the provisioner:
// config/rbac/provisioner.yaml.
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

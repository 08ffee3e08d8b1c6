package v1alpha1

// Types of conditions. Each is True when all is well.
const (
	// ConditionAccepted says that the operator serves the resource. For an export, its gateway
	// exists and allows it.
	ConditionAccepted = "Accepted"
	// ConditionResolvedRefs says that all objects named by the resource exist.
	ConditionResolvedRefs = "ResolvedRefs"
	// ConditionProgrammed says that all serving pods have applied the resource.
	ConditionProgrammed = "Programmed"
	// ConditionBackendReachable says that the backend answered the pods lately.
	ConditionBackendReachable = "BackendReachable"
	// ConditionRDMAReady says that RPC-over-RDMA is served. TCP does not depend on it.
	ConditionRDMAReady = "RDMAReady"
	// ConditionClientAddressesVisible says that access rules see the addresses of clients, not of
	// nodes.
	ConditionClientAddressesVisible = "ClientAddressesVisible"
	// ConditionConfigCapacity says that the configuration of a gateway's shared pods has room for
	// more.
	ConditionConfigCapacity = "ConfigCapacity"
	// ConditionReady says that a new client can mount.
	ConditionReady = "Ready"
)

// Reasons of conditions. Each has an anchor of its name, in lower case, in docs/troubleshooting.md.
const (
	// Conditions that are True.
	ReasonAccepted   = "Accepted"
	ReasonResolved   = "Resolved"
	ReasonProgrammed = "Programmed"
	ReasonReachable  = "Reachable"
	ReasonServing    = "Serving"
	ReasonVisible    = "Visible"
	ReasonReady      = "Ready"

	// Accepted, of an export.
	ReasonGatewayNotFound     = "GatewayNotFound"
	ReasonNamespaceNotAllowed = "NamespaceNotAllowed"
	ReasonBackendNotAllowed   = "BackendNotAllowed"
	ReasonTooManyExports      = "TooManyExports"
	ReasonClaimElsewhere      = "ClaimElsewhere" // claims: the gateway's namespace only
	ReasonClaimInUse          = "ClaimInUse"     // by an older export
	ReasonAddressTaken        = "AddressTaken"   // by an older export, or something else
	ReasonAddressOutsidePool  = "AddressOutsidePool"
	ReasonNoFreeAddress       = "NoFreeAddress"
	ReasonNoFreePort          = "NoFreePort"
	ReasonHandleIdentityTaken = "HandleIdentityTaken" // by an older export
	ReasonInvalid             = "Invalid"             // refused by the configuration's validation

	// Accepted, of a gateway.
	ReasonPoolInvalid = "PoolInvalid"

	// ResolvedRefs.
	ReasonClaimNotFound   = "ClaimNotFound"
	ReasonClaimLost       = "ClaimLost"
	ReasonNoSuchNodes     = "NoSuchNodes"   // from.nodes selects none
	ReasonNoProvisioner   = "NoProvisioner" // for from.provisioner
	ReasonSecretNotFound  = "SecretNotFound"
	ReasonSecretInvalid   = "SecretInvalid"
	ReasonNetworkNotFound = "NetworkNotFound"

	// Programmed.
	ReasonNameTaken            = "NameTaken"     // by an object of another owner
	ReasonObjectRefused        = "ObjectRefused" // by the API server; the message quotes it
	ReasonPodsPending          = "PodsPending"
	ReasonNoReplicas           = "NoReplicas"
	ReasonPodsRefused          = "PodsRefused" // by admission; the message quotes it
	ReasonPodsCrashing         = "PodsCrashing"
	ReasonImageNotPulled       = "ImageNotPulled"
	ReasonNoNodeOffersResource = "NoNodeOffersResource"
	ReasonNodeLost             = "NodeLost"        // the node of a pod does not answer
	ReasonPodsUnreachable      = "PodsUnreachable" // their /status does not answer the operator
	ReasonApplying             = "Applying"
	ReasonNotApplied           = "NotApplied" // a pod refuses the configuration

	// BackendReachable.
	ReasonUnreachable    = "Unreachable"
	ReasonBackendRefuses = "BackendRefuses" // it answers, but refuses the gateway
	ReasonUnknown        = "Unknown"        // no pod has asked yet

	// RDMAReady.
	ReasonListenerFailed         = "ListenerFailed"
	ReasonDeviceMissing          = "DeviceMissing"
	ReasonDeviceInOtherNamespace = "DeviceInOtherNamespace"
	ReasonFunctionWithoutDevice  = "FunctionWithoutDevice" // the function has no RDMA device
	ReasonDeviceNodeMissing      = "DeviceNodeMissing"     // in /dev/infiniband
	ReasonDeviceNodeDenied       = "DeviceNodeDenied"
	ReasonPortDown               = "PortDown"
	ReasonGIDMissing             = "GIDMissing" // of the served address
	ReasonRoCEv1Only             = "RoCEv1Only"
	ReasonDeviceNotUsable        = "DeviceNotUsable" // another check fails
	ReasonMTUMismatch            = "MTUMismatch"     // RDMAReady is True
	ReasonMemoryReadable         = "MemoryReadable"  // by clients; RDMAReady is True
	ReasonNetworkNotLayer2       = "NetworkNotLayer2"
	ReasonDeviceAddressLimit     = "DeviceAddressLimit"
	ReasonAddressNotHeld         = "AddressNotHeld" // no pod carries the virtual IP

	// ConfigCapacity.
	ReasonCapacitySufficient = "CapacitySufficient"
	ReasonCapacityLow        = "CapacityLow"       // 80 % are taken
	ReasonCapacityExhausted  = "CapacityExhausted" // there is no room for an export

	// ClientAddressesVisible.
	ReasonNodesOnly = "NodesOnly"
	ReasonNoClients = "NoClients"

	// Ready.
	ReasonAddressPending = "AddressPending" // the Service has no address yet
)

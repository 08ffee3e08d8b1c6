package v1alpha1

// Types of conditions. All are True when things are well, and carry the generation that they are about.
const (
	// Accepted: the operator acts upon the resource; its gateway, for an export, exists and consents.
	ConditionAccepted = "Accepted"
	// ResolvedRefs: what the resource names is there.
	ConditionResolvedRefs = "ResolvedRefs"
	// Programmed: all pods that serve have applied the resource as it is.
	ConditionProgrammed = "Programmed"
	// BackendReachable: the backend answered the pods when it was last asked.
	ConditionBackendReachable = "BackendReachable"
	// RDMAReady: RPC-over-RDMA is served. TCP is not affected by it.
	ConditionRDMAReady = "RDMAReady"
	// ClientAddressesVisible: access rules see the clients' own addresses. False: they see those of nodes.
	ConditionClientAddressesVisible = "ClientAddressesVisible"
	// ConfigCapacity, of a gateway: the configuration of its shared pods has room for more.
	ConditionConfigCapacity = "ConfigCapacity"
	// Ready: a new client can mount now.
	ConditionReady = "Ready"
)

// Reasons of conditions. Each has an anchor of its name, in lower case, in docs/troubleshooting.md.
const (
	// The reasons of conditions that are True.
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
	ReasonClaimElsewhere      = "ClaimElsewhere" // a claim is served in the gateway's namespace alone
	ReasonClaimInUse          = "ClaimInUse"     // by an older export
	ReasonAddressTaken        = "AddressTaken"   // by an older export, or something else
	ReasonAddressOutsidePool  = "AddressOutsidePool"
	ReasonNoFreeAddress       = "NoFreeAddress"
	ReasonNoFreePort          = "NoFreePort"
	ReasonHandleIdentityTaken = "HandleIdentityTaken" // by an older export
	ReasonInvalid             = "Invalid"             // the gateway's configuration refuses it

	// Accepted, of a gateway.
	ReasonPoolInvalid = "PoolInvalid"

	// ResolvedRefs.
	ReasonClaimNotFound   = "ClaimNotFound"
	ReasonClaimLost       = "ClaimLost"
	ReasonNoSuchNodes     = "NoSuchNodes" // from.nodes picks none
	ReasonSecretNotFound  = "SecretNotFound"
	ReasonSecretInvalid   = "SecretInvalid"
	ReasonNetworkNotFound = "NetworkNotFound"

	// Programmed.
	ReasonNameTaken            = "NameTaken"     // by an object that somebody else made
	ReasonObjectRefused        = "ObjectRefused" // by the API server, whose words are quoted
	ReasonPodsPending          = "PodsPending"
	ReasonNoReplicas           = "NoReplicas"
	ReasonPodsRefused          = "PodsRefused" // by admission, whose words are quoted
	ReasonPodsCrashing         = "PodsCrashing"
	ReasonImageNotPulled       = "ImageNotPulled"
	ReasonNoNodeOffersResource = "NoNodeOffersResource"
	ReasonNodeLost             = "NodeLost"        // a pod's node answers nobody
	ReasonPodsUnreachable      = "PodsUnreachable" // their /status does not answer the operator
	ReasonApplying             = "Applying"
	ReasonNotApplied           = "NotApplied" // a pod refuses the configuration, and says why

	// BackendReachable.
	ReasonUnreachable    = "Unreachable"
	ReasonBackendRefuses = "BackendRefuses" // it answers, but not to us
	ReasonUnknown        = "Unknown"        // no pod has asked yet

	// RDMAReady.
	ReasonListenerFailed     = "ListenerFailed"
	ReasonDeviceMissing      = "DeviceMissing"
	ReasonDeviceNotUsable    = "DeviceNotUsable" // a preflight check fails, and says what to do
	ReasonNetworkNotLayer2   = "NetworkNotLayer2"
	ReasonDeviceAddressLimit = "DeviceAddressLimit"
	ReasonAddressNotHeld     = "AddressNotHeld" // no pod carries the virtual IP now

	// ConfigCapacity.
	ReasonCapacitySufficient = "CapacitySufficient"
	ReasonCapacityLow        = "CapacityLow"       // four fifths are taken
	ReasonCapacityExhausted  = "CapacityExhausted" // there is no room for an export

	// ClientAddressesVisible.
	ReasonNodesOnly = "NodesOnly"
	ReasonNoClients = "NoClients"

	// Ready.
	ReasonAddressPending = "AddressPending" // the Service has none yet
)

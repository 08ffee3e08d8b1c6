package v1alpha1

import "time"

// Parse calls setDefaults on a value before it decodes the value, so absent fields keep their
// defaults, and false differs from absent.

// Default returns a configuration with all defaults and no exports.
func Default() GatewayConfig {
	var c GatewayConfig
	c.setDefaults()
	return c
}

// DefaultExport returns an export with all defaults.
func DefaultExport() Export {
	var e Export
	e.setDefaults()
	return e
}

// DefaultNFSServer returns a server with all defaults.
func DefaultNFSServer() NFSServer {
	var s NFSServer
	s.setDefaults()
	return s
}

func (c *GatewayConfig) setDefaults() {
	c.APIVersion, c.Kind = "", ""
	c.Admin = Admin{Address: "127.0.0.1:9180"}
	c.DrainTimeout = Duration(20 * time.Second)
	c.StateDir = "/var/lib/sluice"
	c.Limits = TotalLimits{ReceiveMemory: 2 << 30}
	c.Log = Log{Level: "info", Format: "text"}
}

func (e *Export) setDefaults() {
	e.Transport = Transport{
		RPCRDMAVersions:    []int{1},
		InlineThreshold:    InlineThreshold{Call: 4 << 10, Reply: 4 << 10},
		Credits:            Credits{Policy: Static, Max: 128},
		RemoteInvalidation: true,
		OnChange:           Reconnect,
	}
	e.Limits = Limits{
		Connections: 1024, ConnectionsPerClient: 256, Memory: 256 << 20, MemoryPerConnection: 2 << 20, MinProgress: 64 << 10,
		IdleTimeout: IdleTimeout{BeforeFirstCall: Duration(30 * time.Second), AfterCall: Duration(time.Hour)},
	}
}

func (r *AccessRule) setDefaults() { r.Mode, r.Squash = ReadOnly, SquashRoot }

func (v *Volume) setDefaults() {
	v.NFS4 = NFS4{Lease: Duration(90 * time.Second), Clients: 1024, Shared: true, Sessions: SessionsVolatile}
}

// DefaultVolume returns a volume with all defaults.
func DefaultVolume(path string) *Volume {
	v := new(Volume)
	v.setDefaults()
	v.Path = path
	return v
}

func (s *NFSServer) setDefaults() { s.Port, s.Versions = 2049, defaultVersions() }

func (s *RDMAServer) setDefaults() { s.Port, s.Path, s.Versions = 20049, "/", defaultVersions() }

func defaultVersions() []NFSVersion { return []NFSVersion{NFSv3, NFSv41, NFSv42} }

func (c *Continuation) setDefaults() { c.MaxCallTransmissions, c.MaxReplyTransmissions = 16, 16 }

func (p *Placement) setDefaults() { p.ReceiveBuffer, p.MinLength = 64<<10, 4<<10 }

func (o *ListenerOptions) setDefaults() { o.CRC = true }

// Complete sets the defaults that depend on other fields. Parse calls it.
func (e *Export) Complete() {
	if v := e.Backend.Volume; v != nil && v.NFS4.Grace == 0 {
		v.NFS4.Grace = v.NFS4.Lease
	}
	if _, _, remote := e.Backend.Remote(); remote {
		if e.SignHandles == "" {
			e.SignHandles = SignAuto
		}
		if e.GSS == "" {
			e.GSS = GSSRefuse
		}
	}
	t := &e.Transport
	if t.Extensions == nil && t.offers2() && t.Version2Dialect != WorkingGroup {
		t.Extensions = []Extension{TransportProperties}
	}
	if t.Continuation == nil && t.offers(MessageContinuation) {
		t.Continuation = new(Continuation)
		t.Continuation.setDefaults()
	}
	if t.Placement == nil && t.offers(SendBasedPlacement) {
		t.Placement = new(Placement)
		t.Placement.setDefaults()
	}
	if c := &t.Credits; c.Policy == Adaptive && c.Min == 0 {
		c.Min = min(8, c.Max)
	}
	if l := &e.Limits; l.MemoryPerClient == 0 {
		l.MemoryPerClient = l.clientPart()
	}
	for i := range e.Listeners {
		l := &e.Listeners[i]
		if l.Network != RDMA {
			continue
		}
		if l.Provider == "" {
			l.Provider = IWARP
		}
		if l.Options == nil && l.Provider == IWARP {
			l.Options = new(ListenerOptions)
			l.Options.setDefaults()
		}
	}
}

// clientPart is the default of MemoryPerClient.
func (l *Limits) clientPart() Quantity { return max(64<<10, l.Memory/4) }

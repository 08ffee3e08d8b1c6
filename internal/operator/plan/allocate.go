package plan

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/sluice/api/v1alpha1"
)

// record is the address and ports that a Service keeps for its export.
type record struct {
	first   int32      // of a pair of target ports; 0: none
	address netip.Addr // virtual, or the cluster IP; zero: none
}

// reserve records the ports and addresses of Services and live pods. It keeps them for exports that
// are not served or are being deleted: while the Service exists, clients may connect.
func (m *maker) reserve() {
	m.ports, m.addresses, m.records = map[int32]string{}, map[string]string{}, map[string]record{}
	m.busyPorts, m.busyAddresses = map[int32][]string{}, map[string][]string{}
	found := map[string]record{}
	for i := range m.in.Services {
		s := &m.in.Services[i]
		found[s.Labels[LabelExportNamespace]+"."+s.Labels[LabelExport]] = m.recordOf(s)
	}
	listed := map[string]bool{}
	var order []string // oldest exports first, then deleted ones
	for _, e := range m.exports {
		name := ConfigName(e)
		order, listed[name] = append(order, name), true
		if r, ok := found[name]; ok && e.Spec.Backend.PersistentVolumeClaim != nil {
			r.first = 0 // a claim's pod has fixed ports
			found[name] = r
		}
	}
	var gone []string
	for name := range found {
		if !listed[name] {
			gone = append(gone, name)
		}
	}
	slices.Sort(gone)
	for _, name := range append(order, gone...) {
		r, ok := found[name]
		if !ok {
			continue
		}
		if r.first != 0 && m.ports[r.first] == "" {
			m.ports[r.first] = name
		} else {
			r.first = 0
		}
		if r.address.IsValid() && m.addresses[r.address.String()] == "" {
			m.addresses[r.address.String()] = name
		} else {
			r.address = netip.Addr{}
		}
		m.records[name] = r
	}
	m.busyExports = map[string]bool{}
	for _, b := range m.in.LiveListeners {
		m.busyExports[b.Export] = true
		host, port, ok := strings.Cut(b.Address, "]:")
		if i := strings.LastIndexByte(b.Address, ':'); !ok && i >= 0 {
			host, port = b.Address[:i], b.Address[i+1:]
		}
		if a, ok := parseAddress(strings.TrimPrefix(host, "[")); ok && !a.IsUnspecified() {
			m.busyAddresses[a.String()] = append(m.busyAddresses[a.String()], b.Export)
		} else if n, err := strconv.ParseUint(port, 10, 16); err == nil && n >= FirstPort && (b.Workload == "" || b.Workload == m.in.Gateway.Name) {
			first := int32(n) - (int32(n)-FirstPort)%2
			m.busyPorts[first] = append(m.busyPorts[first], b.Export)
		}
	}
}

func (m *maker) recordOf(s *corev1.Service) (r record) {
	for _, p := range s.Spec.Ports {
		n := p.TargetPort.IntVal
		if p.Name == PortTCP {
			n--
		}
		if n >= FirstPort && n < LastPort && (n-FirstPort)%2 == 0 {
			r.first = n
		}
	}
	text := s.Spec.ClusterIP
	if m.virtual() {
		text = s.Annotations[AnnotationAddress]
		if in := s.Status.LoadBalancer.Ingress; text == "" && len(in) > 0 {
			text = in[0].IP
		}
	}
	r.address, _ = parseAddress(text)
	return r
}

func parseAddress(s string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(s)
	return a.Unmap(), err == nil
}

// others returns the first of names that is not name.
func others(names []string, name string) (string, bool) {
	i := slices.IndexFunc(names, func(n string) bool { return n != name })
	if i < 0 {
		return "", false
	}
	return slices.Min(slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == name })), true
}

// shown converts a ConfigName to NAMESPACE/NAME.
func shown(name string) string { return strings.Replace(name, ".", "/", 1) }

// address assigns a virtual address to x, or checks the requested one.
func (m *maker) address(x *Export) *refusal {
	name, ip := ConfigName(x.Source), x.Source.Spec.Address.IP
	a, given := m.records[name].address, false
	if ip != "" {
		asked, ok := parseAddress(ip)
		if !ok {
			return refuse(v1alpha1.ReasonInvalid, "address.ip: %q: want an IP address, such as 192.0.2.10, or none", ip)
		}
		given, a = asked == a, asked
		if r := m.free(name, a, given); r != nil {
			return r
		}
	}
	if !m.virtual() {
		return nil
	}
	if p := x.Source.Spec.Address.RDMAPort; p >= FirstPort && p <= LastPort || p == AdminPort || p == SpeakerPort {
		return refuse(v1alpha1.ReasonInvalid, "address.rdmaPort: %d: pods use %d, %d and %d to %d themselves: choose another port", p, AdminPort, SpeakerPort, FirstPort, LastPort)
	}
	if !a.IsValid() {
		var ok bool
		taken := func(a netip.Addr) bool {
			s := a.String()
			return m.addresses[s] != "" || m.asked[s] != "" || m.in.OtherGateways[s] != ""
		}
		a, ok = m.pool.free(&m.nextAddress, taken, func(a netip.Addr) bool {
			_, busy := others(m.busyAddresses[a.String()], name)
			return busy
		})
		if !ok {
			return refuse(v1alpha1.ReasonNoFreeAddress, "all addresses of exposure.virtualIP.pool of NFSGateway %s/%s are in use: ask its owner to add addresses, or delete exports", m.in.Gateway.Namespace, m.in.Gateway.Name)
		}
	}
	m.addresses[a.String()] = name
	x.VIP = a.String()
	return nil
}

// free refuses a requested address that x cannot have. An address given before stays, even outside
// a changed pool.
func (m *maker) free(name string, a netip.Addr, given bool) *refusal {
	if given {
		return nil
	}
	if m.virtual() && !m.pool.contains(a) {
		return refuse(v1alpha1.ReasonAddressOutsidePool, "address.ip: %s is not in exposure.virtualIP.pool of NFSGateway %s/%s (%s): choose one of these, or omit it", a, m.in.Gateway.Namespace, m.in.Gateway.Name,
			strings.Join(m.in.Gateway.Spec.Exposure.VirtualIP.Pool, ", "))
	}
	for _, o := range []string{m.addresses[a.String()], m.asked[a.String()]} {
		if o != "" && o != name {
			return refuse(v1alpha1.ReasonAddressTaken, "address.ip: %s belongs to NFSExport %s: choose another one, or omit it", a, shown(o))
		}
	}
	if o := m.in.OtherGateways[a.String()]; o != "" && m.virtual() {
		return refuse(v1alpha1.ReasonAddressTaken, "address.ip: %s belongs to NFSExport %s of another NFSGateway on the network: choose another one, or omit it", a, o)
	}
	if o, busy := others(m.busyAddresses[a.String()], name); busy {
		return refuse(v1alpha1.ReasonAddressTaken, "address.ip: a pod still serves %s for its former NFSExport %s: wait, or choose another one", a, shown(o))
	}
	return nil
}

// targets assigns the ports of the pods to x.
func (m *maker) targets(x *Export) *refusal {
	name := ConfigName(x.Source)
	first := int32(FirstPort)
	if x.Source.Spec.Backend.PersistentVolumeClaim == nil {
		if first = m.records[name].first; first == 0 {
			first = m.freePorts(name)
		}
		if first == 0 {
			return refuse(v1alpha1.ReasonNoFreePort, "all ports of the pods of NFSGateway %s/%s, %d to %d, are in use: create another NFSGateway for further exports", m.in.Gateway.Namespace, m.in.Gateway.Name, FirstPort, LastPort)
		}
		m.ports[first] = name
	}
	x.RDMATarget, x.TCPTarget = first, first+1
	if m.virtual() {
		x.RDMATarget = rdmaPort(x.Source)
	}
	return nil
}

// freePorts returns the lowest free pair of ports; 0 if there is none.
func (m *maker) freePorts(name string) int32 {
	m.nextPorts = max(m.nextPorts, FirstPort)
	for m.nextPorts < LastPort && m.ports[m.nextPorts] != "" {
		m.nextPorts += 2
	}
	for first := m.nextPorts; first < LastPort; first += 2 {
		if _, busy := others(m.busyPorts[first], name); !busy && m.ports[first] == "" {
			return first
		}
	}
	return 0
}

package v1alpha1

import (
	"net/netip"
	"slices"
	"strings"
)

const (
	maxNetworkSets    = 1024
	maxSetNetworks    = 1 << 16
	maxRuleSets       = 64
	maxRuleNetworks   = 1024
	networksExample   = "such as 10.0.0.0/8; 0.0.0.0/0 and ::/0 are everyone"
	networkSetExample = "networkSets: [{name: nodes, networks: [10.0.0.0/8]}]"
)

// NewNetworkSet returns a set and computes its hash.
func NewNetworkSet(name string, networks []netip.Prefix) *NetworkSet {
	s := &NetworkSet{Name: name, Networks: networks}
	s.setHash()
	return s
}

func (s *NetworkSet) setHash() {
	var b []byte
	for _, p := range s.Networks {
		b = append(p.AppendTo(b), ' ')
	}
	s.Hash = hash(b)
}

// All returns all networks of a rule. Callers must not modify them.
func (f *AccessFrom) All() []netip.Prefix {
	switch {
	case len(f.Sets) == 0:
		return f.Networks
	case len(f.Sets) == 1 && len(f.Networks) == 0:
		return f.Sets[0].Networks
	}
	all := slices.Clone(f.Networks)
	for _, s := range f.Sets {
		all = append(all, s.Networks...)
	}
	return all
}

// Resolve links access rules to their named sets. [Parse] calls it. [GatewayConfig.Validate]
// reports missing sets.
func (c *GatewayConfig) Resolve() {
	if len(c.NetworkSets) == 0 {
		return
	}
	sets := make(map[string]*NetworkSet, len(c.NetworkSets))
	for i := range c.NetworkSets {
		c.NetworkSets[i].setHash()
		sets[c.NetworkSets[i].Name] = &c.NetworkSets[i]
	}
	for i := range c.Exports {
		for j := range c.Exports[i].Access {
			f := &c.Exports[i].Access[j].From
			f.Sets = nil
			for _, name := range f.NetworkSets {
				if s := sets[name]; s != nil {
					f.Sets = append(f.Sets, s)
				}
			}
		}
	}
}

func (c *GatewayConfig) validateNetworkSets(r report) {
	if n := len(c.NetworkSets); n > maxNetworkSets {
		r.at("networkSets").refuse(n, "want at most %d sets", maxNetworkSets)
	}
	first := map[string]int{}
	var names []string
	for i := range c.NetworkSets {
		s, rs := &c.NetworkSets[i], r.at("networkSets").index(i)
		if want := checkName(s.Name); want != "" {
			rs.at("name").refuse(s.Name, "%s", want)
		}
		if j, twice := first[s.Name]; twice {
			rs.at("name").refuse(s.Name, "networkSets[%d].name is the same: want a name for each set", j)
		} else {
			first[s.Name], names = i, append(names, s.Name)
		}
		if n := len(s.Networks); n < 1 || n > maxSetNetworks {
			rs.at("networks").refuse(n, "want 1 to %d networks, %s", maxSetNetworks, networksExample)
		}
		checkNetworks(rs.at("networks"), s.Networks)
	}
	for i := range c.Exports {
		for j := range c.Exports[i].Access {
			for k, name := range c.Exports[i].Access[j].From.NetworkSets {
				if _, known := first[name]; known {
					continue
				}
				rn := r.at("exports").index(i).at("access").index(j).at("from").at("networkSets").index(k)
				if len(names) == 0 {
					rn.refuse(name, "no such set: the file has none; want %s", networkSetExample)
				} else {
					rn.refuse(name, "no such set: want one of the file's networkSets: %s", shorten(strings.Join(names, ", ")))
				}
			}
		}
	}
}

func (f *AccessFrom) validate(r report) {
	if n := len(f.Networks); n > maxRuleNetworks || n < 1 && len(f.NetworkSets) == 0 {
		r.at("networks").refuse(n, "want 1 to %d networks, %s", maxRuleNetworks, networksExample)
	}
	checkNetworks(r.at("networks"), f.Networks)
	if n := len(f.NetworkSets); n > maxRuleSets {
		r.at("networkSets").refuse(n, "want at most %d names of sets", maxRuleSets)
	}
}

func checkNetworks(r report, networks []netip.Prefix) {
	for i, p := range networks {
		switch {
		case !p.IsValid():
			r.index(i).refuse(nil, "want a network such as 10.0.0.0/8 or fd00::/8")
		case p.Addr().Is4In6():
			r.index(i).refuse(p.String(), "want IPv4 clients as IPv4 networks: 10.0.0.0/8, not ::ffff:10.0.0.0/104")
		case p.Masked() != p:
			r.index(i).refuse(p.String(), "has host bits: want %s", p.Masked())
		}
	}
}

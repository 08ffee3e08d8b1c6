package v1alpha1

import (
	"encoding/json"
	"reflect"
	"sync"
)

// Sparse returns a file that [Parse] reads as c, for JSON or YAML, without the fields at their
// defaults. That keeps it short, and lets older gateways read it unless it sets newer fields. It
// does not change c.
func (c *GatewayConfig) Sparse() map[string]any {
	frame := *c
	frame.Exports = nil
	out := without(tree(frame), defaults().frame)
	exports := []any{}
	for i := range c.Exports {
		exports = append(exports, c.Exports[i].Sparse())
	}
	out["exports"] = exports
	return out
}

// defaults are the trees of the default values.
var defaults = sync.OnceValue(func() (d struct{ frame, export, rule, rdma, volume, nfsServer, rdmaServer map[string]any }) {
	var rule AccessRule
	var nfs NFSServer
	var rdma RDMAServer
	rule.setDefaults()
	nfs.setDefaults()
	rdma.setDefaults()
	iwarp := Export{Listeners: []Listener{{Network: RDMA}}}
	iwarp.Complete()
	d.frame, d.export, d.rule, d.nfsServer, d.rdmaServer = tree(Default()), tree(DefaultExport()), tree(rule), tree(nfs), tree(rdma)
	d.volume = tree(DefaultVolume(""))
	d.rdma = map[string]any{"provider": string(IWARP), "options": tree(iwarp.Listeners[0].Options)}
	return d
})

// Sparse returns an export as in the list of [GatewayConfig.Sparse].
func (e *Export) Sparse() map[string]any {
	d := defaults()
	some := *e
	if l := &some.Limits; l.MemoryPerClient == l.clientPart() {
		l.MemoryPerClient = 0
	}
	if v := some.Backend.Volume; v != nil && v.NFS4.Grace == v.NFS4.Lease {
		same := *v
		same.NFS4.Grace = 0
		some.Backend.Volume = &same
	}
	out := without(tree(some), d.export)
	for _, r := range list(out["access"]) {
		without(r, d.rule)
	}
	for _, l := range list(out["listeners"]) {
		if l["network"] == string(RDMA) {
			without(l, d.rdma)
		}
	}
	if b, ok := out["backend"].(map[string]any); ok {
		for kind, of := range map[string]map[string]any{"volume": d.volume, "nfs": d.nfsServer, "rdma": d.rdmaServer} {
			if server, ok := b[kind].(map[string]any); ok {
				without(server, of)
			}
		}
	}
	return out
}

func tree(v any) map[string]any {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // a struct of strings and numbers
	}
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		panic(err) // marshaled above
	}
	return m
}

func list(v any) (out []map[string]any) {
	all, _ := v.([]any)
	for _, e := range all {
		if m, ok := e.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

// without deletes the defaults from m and returns m.
func without(m, defaults map[string]any) map[string]any {
	for k, d := range defaults {
		v, there := m[k]
		if !there {
			continue
		}
		if inner, ok := v.(map[string]any); ok {
			if of, ok := d.(map[string]any); ok && len(without(inner, of)) == 0 {
				delete(m, k)
			}
		} else if reflect.DeepEqual(v, d) {
			delete(m, k)
		}
	}
	return m
}

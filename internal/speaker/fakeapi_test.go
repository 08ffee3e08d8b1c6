package speaker

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// fakeAPI is the part of the API server that a speaker uses: get, watch and merge patches of
// Leases.
type fakeAPI struct {
	mu      sync.Mutex
	rev     int
	leases  map[string]map[string]any
	changed chan struct{} // closed with each change
}

func newFakeAPI(t *testing.T, ns *namespace, address string) *fakeAPI {
	f := &fakeAPI{leases: map[string]map[string]any{}, changed: make(chan struct{})}
	var l net.Listener
	ns.do(func() (err error) {
		l, err = net.Listen("tcp", address)
		return err
	})
	s := &http.Server{Handler: f}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return f
}

func (f *fakeAPI) create(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.put(name, map[string]any{
		"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
		"metadata": map[string]any{"name": name, "namespace": "default"}, "spec": map[string]any{},
	})
}

func (f *fakeAPI) put(name string, lease map[string]any) {
	f.rev++
	lease["metadata"].(map[string]any)["resourceVersion"] = fmt.Sprint(f.rev)
	f.leases[name] = lease
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fakeAPI) holder(name string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	h, _ := f.leases[name]["spec"].(map[string]any)["holderIdentity"].(string)
	return h
}

// json returns a Lease and its version.
func (f *fakeAPI) json(name string) (b []byte, version string, changed chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.leases[name]
	if l == nil {
		return nil, "", f.changed
	}
	b, _ = json.Marshal(l)
	return b, l["metadata"].(map[string]any)["resourceVersion"].(string), f.changed
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const prefix = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
	w.Header().Set("Content-Type", "application/json")
	name := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, prefix), "/")
	switch {
	case !strings.HasPrefix(r.URL.Path, prefix):
		refuse(w, http.StatusNotFound)
	case name == "" && r.URL.Query().Get("watch") != "":
		f.watch(w, r)
	case r.Method == http.MethodPatch && r.Header.Get("Content-Type") == "application/merge-patch+json":
		f.patch(w, r, name)
	case r.Method == http.MethodGet:
		b, _, _ := f.json(name)
		if b == nil {
			refuse(w, http.StatusNotFound)
			return
		}
		_, _ = w.Write(b)
	default:
		refuse(w, http.StatusMethodNotAllowed)
	}
}

func refuse(w http.ResponseWriter, code int) {
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": %d}`, code)
}

func (f *fakeAPI) patch(w http.ResponseWriter, r *http.Request, name string) {
	var p struct {
		Metadata struct{ ResourceVersion string }
		Spec     map[string]any
	}
	if json.NewDecoder(r.Body).Decode(&p) != nil {
		refuse(w, http.StatusBadRequest)
		return
	}
	f.mu.Lock()
	l := f.leases[name]
	if l == nil || l["metadata"].(map[string]any)["resourceVersion"] != p.Metadata.ResourceVersion {
		f.mu.Unlock()
		refuse(w, http.StatusConflict)
		return
	}
	spec := l["spec"].(map[string]any)
	for k, v := range p.Spec {
		if v == nil {
			delete(spec, k)
		} else {
			spec[k] = v
		}
	}
	f.put(name, l)
	f.mu.Unlock()
	b, _, _ := f.json(name)
	_, _ = w.Write(b)
}

func (f *fakeAPI) watch(w http.ResponseWriter, r *http.Request) {
	name, ok := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
	if !ok {
		refuse(w, http.StatusForbidden) // a speaker may read its own Leases only
		return
	}
	w.(http.Flusher).Flush()
	last := r.URL.Query().Get("resourceVersion")
	for {
		b, version, changed := f.json(name)
		if version != last {
			last = version
			fmt.Fprintf(w, "{\"type\": \"MODIFIED\", \"object\": %s}\n", b)
			w.(http.Flusher).Flush()
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

package adminpage

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"sync"
	"time"

	status "sluice.dev/sluice/api/status/v1alpha1"
	"sluice.dev/sluice/internal/adminport"
)

// maxRows is the number of clients on the page of an export.
const maxRows = 200

//go:embed page/pages.html
var pagesHTML string

//go:embed page/style.css
var styleCSS string

var pages = template.Must(template.New("").Funcs(template.FuncMap{
	"bytes": func(n any) string {
		switch n := n.(type) {
		case uint64:
			return formatBytes(float64(n))
		case int64:
			return formatBytes(float64(n))
		case int:
			return formatBytes(float64(n))
		}
		return ""
	},
	"mean": func(c status.Calls) string {
		if c.RPCs == 0 {
			return "–"
		}
		return formatSeconds(c.Seconds / float64(c.RPCs))
	},
	"time":  func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
	"age":   func(t time.Time) string { return time.Since(t).Round(time.Second).String() },
	"width": func() int { return chartWidth }, "height": func() int { return chartHeight },
}).Parse(pagesHTML))

// overview is the page of the gateway.
type overview struct {
	status.Status
	Rows   []row
	Errors []string // current ones
	Lines  []string
}

// row is an export on the page of the gateway.
type row struct {
	status.Export
	Connections    int
	InUse          int
	Calls, In, Out string
	Points         string // of bytes per second
}

// exportPage is the page of an export.
type exportPage struct {
	Build status.Build
	status.Export
	InUse          int
	Bytes, CallsPS chart
	Bars           []bar
	BarsWidth      int
	Rest           int // clients that are not shown
}

// page serves HTML pages. One is made at a time.
type page struct {
	gateway Gateway
	history history

	making sync.Mutex
}

func (p *page) overview(w http.ResponseWriter, _ *http.Request) {
	o := overview{Status: p.gateway.Status(true), Lines: p.gateway.Recent.newestFirst()}
	o.Errors = currentErrors(&o.Status)
	for i := range o.Exports {
		e := &o.Exports[i]
		r := row{Export: *e, Connections: len(e.Clients) + e.ClientsOmitted, InUse: inUse(e)}
		rates := p.history.rates(e.Name)
		var now rate
		var sum []float64
		top := 0.0
		for _, now = range rates {
			sum = append(sum, now.in+now.out)
			top = max(top, now.in+now.out)
		}
		r.Calls, r.In, r.Out = callsPerSecond(now.rpcs), bytesPerSecond(now.in), bytesPerSecond(now.out)
		r.Points = points(sum, top)
		o.Rows = append(o.Rows, r)
	}
	p.write(w, "overview", o)
}

// currentErrors returns the errors of the configuration, and those of exports.
func currentErrors(s *status.Status) (all []string) {
	add := func(where, text string) {
		if text != "" {
			all = append(all, where+": "+text)
		}
	}
	add("configuration", s.Config.Error)
	add("keys of file handles", s.Config.HandleKeysError)
	for i := range s.Exports {
		e := &s.Exports[i]
		add(e.Name, e.Error)
		for j := range e.Listeners {
			l := &e.Listeners[j]
			add(fmt.Sprintf("%s: %s %s", e.Name, l.Network, l.Configured), l.Error)
			if l.Device != nil {
				for _, p := range l.Device.Problems {
					add(e.Name+": "+p.Reason, p.Message)
				}
			}
		}
		add(e.Name+": backend", e.Backend.Error)
	}
	return all
}

func (p *page) export(w http.ResponseWriter, r *http.Request) {
	s, e := p.find(w, r)
	if e == nil {
		return
	}
	x := exportPage{Build: s.Build, Export: *e, InUse: inUse(e), Bars: latencyBars(e.Counters.Latency)}
	x.BarsWidth = max(chartWidth, barStep*len(x.Bars))
	x.Rest = e.ClientsOmitted + max(0, len(e.Clients)-maxRows)
	x.Clients = e.Clients[:min(len(e.Clients), maxRows)]
	var calls, in, out []float64
	for _, v := range p.history.rates(e.Name) {
		calls, in, out = append(calls, v.rpcs), append(in, v.in), append(out, v.out)
	}
	x.Bytes = newChart("Throughput", bytesPerSecond, []string{"from clients", "to clients"}, in, out)
	x.CallsPS = newChart("Calls", callsPerSecond, []string{"calls"}, calls)
	p.write(w, "export", x)
}

func (p *page) exportStatus(w http.ResponseWriter, r *http.Request) {
	if _, e := p.find(w, r); e != nil {
		writeJSON(w, e)
	}
}

// find returns the export of a path with its name, nil if it has answered that there is none.
func (p *page) find(w http.ResponseWriter, r *http.Request) (status.Status, *status.Export) {
	p.making.Lock()
	s := p.gateway.Status(true)
	p.making.Unlock()
	for i := range s.Exports {
		if s.Exports[i].Name == r.PathValue("export") {
			return s, &s.Exports[i]
		}
	}
	http.Error(w, "there is no such export", http.StatusNotFound)
	return s, nil
}

func (p *page) write(w http.ResponseWriter, name string, data any) {
	var b bytes.Buffer
	if err := pages.ExecuteTemplate(&b, name, data); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	adminport.SetWriteDeadline(w)
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; frame-ancestors 'none'; base-uri 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	_, _ = w.Write(b.Bytes())
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(v)
}

// inUse returns the credits in use by the listed clients.
func inUse(e *status.Export) (n int) {
	for i := range e.Clients {
		if r := e.Clients[i].RDMA; r != nil {
			n += r.InUse
		}
	}
	return n
}

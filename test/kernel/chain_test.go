//go:build kernel

package kernel

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	status "sluice.dev/sluice/api/status/v1alpha1"
	"sluice.dev/sluice/pkg/rdma/iwarp/iwarptest"
	"sluice.dev/sluice/test/kernel/pattern"
	"sluice.dev/sluice/test/v2/faultinject"
)

// links are the transports that the gateways of a chain offer each other. The last one has room for
// almost nothing in its receives, groups and credits.
var links = []struct {
	name       string
	extensions []string
	far        string // further transport settings of the far gateway
}{
	{"base", nil, ""},
	{"properties", []string{"TransportProperties"}, ""},
	{"continuation", []string{"TransportProperties", "MessageContinuation"}, ""},
	{"placement", []string{"TransportProperties", "SendBasedPlacement"}, ""},
	{"all", []string{"TransportProperties", "MessageContinuation", "SendBasedPlacement"}, ""},
	{"little", []string{"TransportProperties", "MessageContinuation", "SendBasedPlacement"},
		", inlineThreshold: {call: 1Ki, reply: 1Ki}, credits: {max: 3}, continuation: {maxCallTransmissions: 2, maxReplyTransmissions: 2}, placement: {receiveBuffer: 4Ki, minLength: 1}"},
}

// TestChain puts the kernel's client in front of two gateways that speak version 2 of RPC-over-RDMA
// with each other, with each set of extensions:
//
//	kernel -- version 1 --> near gateway -- version 2 --> relay --> far gateway -- backend
//
// The backend is a directory for version 3 of NFS, and NFS-Ganesha for 4.2.
//
// It reads and writes by lengths around every bound of a message, lists directories, and compares
// the result with the far end. Then faults are injected into the link: connections are lost between
// the transmissions of groups, continuations arrive twice, and groups stop. The client's connection
// survives and its data stay right. The connections have no CRC, which takes the guest long.
// testdata/chain.sh has the checks.
func TestChain(t *testing.T) { onKernels(t, []string{linux61}, testChain) }

func testChain(t *testing.T, kernel string) {
	server := startGanesha(t, 0)
	var far, near []*export
	for _, l := range links {
		transport := fmt.Sprintf("rpcRDMAVersions: [1, 2], extensions: [%s]", strings.Join(l.extensions, ", "))
		for version, nfs := range map[string]string{"3": "3", "4": "4.2"} {
			e := export{name: l.name + version, crc: true, volume: folder(t, "volumes/"+l.name), transport: transport + l.far}
			e.backend = fmt.Sprintf("volume: {path: %q}", e.volume)
			if version == "4" {
				e.volume = filepath.Join(server.dir, l.name)
				e.backend = server.backend(l.name)
			}
			for i := range 150 {
				write(t, filepath.Join(e.volume, "many", fmt.Sprintf("%s %d", strings.Repeat("a rather long name ", 10), i)), "123456\n")
			}
			far = append(far, &e)
			near = append(near, &export{name: e.name, volume: e.volume, backend: nfs, transport: transport})
		}
	}
	c := &chain{far: newGateway(t, "far", far...), links: map[string]*link{}}
	for i, e := range near {
		l := &link{extensions: links[i/2].extensions, far: far[i]}
		var err error
		if l.relay, err = iwarptest.Listen(iwarptest.Config{Target: fmt.Sprintf("127.0.0.1:%d", far[i].rdma), Inspect: l.look}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(l.relay.Close)
		_, port, _ := strings.Cut(l.relay.Address(), ":")
		e.backend = fmt.Sprintf("rdma: {server: 127.0.0.1, port: %s, versions: [%q]}", port, e.backend)
		c.links[e.name] = l
	}
	c.host = newHost(t, newGateway(t, "near", near...))
	var names []string
	for _, l := range links {
		names = append(names, l.name)
	}
	faults := "(continuation|placement)/3/lost|all/4.2/(lost|surplus)|all/3/(surplus|stopped-call|stopped-reply)"
	if *full {
		faults = ".*/lost|(continuation|all)/.*/surplus|(continuation|all)/3/stopped-.*"
	}
	c.boot(t, kernel, 20*time.Minute, "chain.sh", c.answer, "-e", "LINKS="+strings.Join(names, " "), "-e", "VERSIONS=3 4.2", "-e", "FAULTS="+faults, "-e", "TREE=")
	c.guest.follow(t)
	if *only != "" {
		return
	}
	t.Run("mountstats", func(t *testing.T) { c.guest.mountstats(t) })
	c.gateway.excused, c.far.excused = c.excused(), c.excused()
	t.Run("near", c.gateway.endsWell)
	t.Run("far", c.far.endsWell)
}

var (
	badGroup       = regexp.MustCompile(`export=(\S+) .*(BADCONT|BADSEQ)`)
	protocolErrors = regexp.MustCompile(`export=(\S+) .*protocolErrors=(\d+)`)
)

// excused accepts at most one complaint about groups for each continuation that was sent twice on
// the links of that export. It also accepts an unreachable backend: the near gateway may be looking
// up the root on the link that is cut.
func (c *chain) excused() func(line []byte) bool {
	groups, faults := map[string]int{}, map[string]int{}
	for name, l := range c.links {
		for _, export := range []string{name, l.far.name} {
			groups[export], faults[export] = l.surplus, l.surplus
		}
	}
	return func(line []byte) bool {
		if m := badGroup.FindSubmatch(line); m != nil {
			groups[string(m[1])]--
			return groups[string(m[1])] >= 0
		}
		if m := protocolErrors.FindSubmatch(line); m != nil {
			n, _ := strconv.Atoi(string(m[2]))
			faults[string(m[1])] -= n
			return faults[string(m[1])] >= 0
		}
		return backendAway.Match(line)
	}
}

// chain is the host's side of testdata/chain.sh. Its gateway is the near one.
type chain struct {
	*host
	far   *gateway
	links map[string]*link // by export
	at    *link            // mounted by the script at present
}

// link is the relay between the two gateways.
type link struct {
	relay      *iwarptest.Relay
	far        *export
	extensions []string

	mu        sync.Mutex
	all       faultinject.Injector // counts
	injectors []*faultinject.Injector
	surplus   int // continuations sent twice
}

// look offers m to each fault and returns the first action.
func (l *link) look(m *iwarptest.Message) iwarptest.Action {
	l.mu.Lock()
	injectors := l.injectors
	l.mu.Unlock()
	l.all.Inspect(m)
	for _, s := range injectors {
		if a := s.Inspect(m); a != iwarptest.Pass {
			return a
		}
	}
	return iwarptest.Pass
}

func (c *chain) answer(t *testing.T, words []string) (known bool, err error) {
	do, args := words[0], words[1:]
	switch {
	case do == "far" && len(args) == 1:
		c.data, c.at = c.gateway.exports[args[0]], c.links[args[0]]
		return true, errors.Join(c.lengths(), c.checksum("some"), c.listing("many"), c.spoken())
	case do == "inject" && len(args) == 2:
		c.at = c.links[args[0]]
		return true, c.at.arm(args[1])
	case do == "injected" && len(args) == 0:
		return true, c.at.injected(t)
	case do == "stopped" && len(args) == 0:
		select {
		case <-c.at.injectors[0].Injected:
			return true, nil
		case <-time.After(patience):
			return true, fmt.Errorf("there was no group for %v", patience)
		}
	case do == "resume" && len(args) == 0:
		c.at.relay.CutAll()
		return true, nil
	}
	return false, nil
}

// lengths compares the file that was written by calls of many lengths.
func (c *chain) lengths() error {
	got, err := os.ReadFile(c.inVolume("lengths"))
	if d := pattern.Differ(got, pattern.Stream()); err == nil && d != "" {
		err = errors.New("the file " + d)
	}
	return err
}

func (l *link) arm(fault string) error {
	var injectors []*faultinject.Injector
	for _, call := range []bool{true, false} {
		begins := faultinject.Bulk(call)
		if slices.Contains(l.extensions, "MessageContinuation") {
			begins = faultinject.FirstOfGroup(call)
		}
		switch fault {
		case "lost":
			injectors = append(injectors, &faultinject.Injector{Match: begins, Action: iwarptest.Cut, Times: 3, After: 1})
		case "surplus":
			injectors = append(injectors, &faultinject.Injector{Match: faultinject.Continuation(call), Action: iwarptest.Repeat, Times: 10, After: 1})
		case "stopped-call", "stopped-reply":
			if call == (fault == "stopped-call") {
				injectors = append(injectors, &faultinject.Injector{Match: faultinject.Continuation(call), Action: iwarptest.Hold, Times: 1, Injected: make(chan struct{})})
			}
		default:
			return fmt.Errorf("there is no fault %q", fault)
		}
	}
	l.mu.Lock()
	l.injectors = injectors
	l.mu.Unlock()
	return nil
}

// injected checks that every fault was injected, and removes them.
func (l *link) injected(t *testing.T) (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.injectors {
		hits, _ := s.Counts()
		if hits != s.Times {
			err = errors.Join(err, fmt.Errorf("%d faults were injected, must be %d", hits, s.Times))
		}
		if s.Action == iwarptest.Repeat {
			l.surplus += hits
		}
		t.Logf("%d faults were injected", hits)
	}
	l.injectors = nil
	return err
}

// spoken checks the versions, the extensions, and how data moved on both sides of the near gateway.
func (c *chain) spoken() error {
	var s status.Status
	page, err := c.far.get("/status")
	if err := errors.Join(err, json.Unmarshal([]byte(page), &s)); err != nil {
		return err
	}
	name, clients := c.at.far.name, 0
	for _, e := range s.Exports {
		for _, x := range e.Clients {
			// a probe that has just begun
			if e.Name != name || x.RDMA != nil && x.RDMA.Version == 0 {
				continue
			}
			clients++
			if x.RDMA == nil || x.RDMA.Version != 2 || !slices.Equal(x.RDMA.Extensions, c.at.extensions) {
				return fmt.Errorf("the far gateway's client at %v is %+v, must have version 2 and %v", x.Remote, x.RDMA, c.at.extensions)
			}
		}
	}
	one, err1 := c.gateway.metric("sluice_rdma_connections", `export="`+name+`"`, `version="1"`)
	two, err2 := c.gateway.metric("sluice_rdma_connections", `export="`+name+`"`, `version="2"`)
	placed, err3 := c.far.metric("sluice_bytes_total", `export="`+name+`"`, `path="placed"`)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	_, groups := c.at.all.Counts()
	if clients == 0 || one < 1 || two > 0 {
		return fmt.Errorf("the far gateway has %d clients; of the near one %g have version 1, and %g version 2", clients, one, two)
	}
	if (groups > 0) != slices.Contains(c.at.extensions, "MessageContinuation") || (placed > 0) != slices.Contains(c.at.extensions, "SendBasedPlacement") {
		return fmt.Errorf("with %v there were %d groups, and %g bytes placed", c.at.extensions, groups, placed)
	}
	return nil
}

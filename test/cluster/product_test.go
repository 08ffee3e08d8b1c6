//go:build cluster

package cluster

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	status "sluice.dev/sluice/api/status/v1alpha1"
)

// product is Sluice as its users have it: a release of the chart, in a namespace that also has its
// NFSGateways.
type product struct {
	*namespace
	ganesha *ganesha
}

// images returns the chart's values that select the images loaded by need.
func images() []string {
	var args []string
	for _, image := range []string{"operator", "gateway", "gatewayVerbs", "speaker"} {
		args = append(args, "--set", "images."+image+".tag=test")
	}
	return args
}

// install installs the chart with the images of this checkout, as release sluice, and with more
// options of helm.
func install(t *testing.T, c *cluster, name, level string, options ...string) *product {
	t.Helper()
	p := &product{namespace: c.namespace(t, name, level), ganesha: startGanesha(t, c)}
	// before the namespace goes: CRDs belong to a release, and the next test's has another
	// namespace
	t.Cleanup(func() {
		if t.Failed() {
			p.show(t)
		}
		_, _ = p.tryHelm("uninstall", "sluice", "--no-hooks", "--ignore-not-found")
		if _, err := c.kubectl("", "delete", "crd", "nfsexports.sluice.dev", "nfsgateways.sluice.dev", "--ignore-not-found"); err != nil {
			t.Error(err)
		}
	})
	p.helm(t, slices.Concat([]string{"install", "sluice", "charts/sluice", "--wait", "--timeout", "6m"}, images(), options)...)
	return p
}

// pods names the running pods of a workload.
func (ns *namespace) pods(t *testing.T, selector string) []string {
	t.Helper()
	return strings.Fields(ns.must(t, "get", "pods", "-l", selector, "-o", `jsonpath={range .items[?(@.status.phase=="Running")]}{.metadata.name} {end}`))
}

// gatewayPods selects the pods of an NFSGateway's shared workload.
const gatewayPods = "sluice.dev/workload=gateway"

// status reads a gateway pod's /status.
func (ns *namespace) status(pod string) (*status.Status, error) {
	said, err := ns.cluster.kubectl("", "get", "--raw", fmt.Sprintf("/api/v1/namespaces/%s/pods/%s:9180/proxy/status", ns.name, pod))
	if err != nil {
		return nil, err
	}
	var s status.Status
	return &s, json.Unmarshal([]byte(said), &s)
}

// connection is a client's connection to an export, as in a pod's /status.
type connection struct {
	pod   string
	since time.Time
	status.RDMA
}

// connections returns the RDMA connections of the export whose name ends in name.
func (ns *namespace) connections(t *testing.T, selector, name string) []connection {
	t.Helper()
	var found []connection
	for _, pod := range ns.pods(t, selector) {
		s, err := ns.status(pod)
		if err != nil {
			continue // just ended
		}
		for _, e := range s.Exports {
			if !strings.HasSuffix(e.Name, name) {
				continue
			}
			for _, c := range e.Clients {
				if c.RDMA != nil {
					found = append(found, connection{pod, c.Since, *c.RDMA})
				}
			}
		}
	}
	return found
}

// only returns the export's single connection.
func (ns *namespace) only(t *testing.T, selector, name string) connection {
	t.Helper()
	var all []connection
	eventually(t, time.Minute, func() error {
		if all = ns.connections(t, selector, name); len(all) != 1 {
			return fmt.Errorf("%d connections to %s, must be one: %+v", len(all), name, all)
		}
		return nil
	})
	return all[0]
}

// condition waits until an object's condition has the reason, and returns its message.
func (ns *namespace) condition(t *testing.T, object, condition, state, reason string) string {
	t.Helper()
	var message string
	eventually(t, time.Minute, func() error {
		said, err := ns.kubectl("get", object, "-o", fmt.Sprintf(`jsonpath={range .status.conditions[?(@.type==%q)]}{.status} {.reason} {.message}{end}`, condition))
		if err != nil {
			return err
		}
		if message = said; !strings.HasPrefix(said, state+" "+reason+" ") {
			return fmt.Errorf("%s of %s is %q, must be %s %s", condition, object, said, state, reason)
		}
		return nil
	})
	return message
}

// sluicectl runs it in the network of a place.
func (c *cluster) sluicectl(t *testing.T, place string, args ...string) (string, error) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "sluicectl")
	build := exec.Command("go", "build", "-trimpath", "-o", program, "./cmd/sluicectl")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, said)
	}
	said, err := c.command("enter", append([]string{place, program}, args...)...).CombinedOutput()
	return string(said), err
}

// processes returns this machine's process ids of a container's programs, by its pod's name.
func processes(t *testing.T, program, pod string) (pids []int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range all {
		environ, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		dir := filepath.Dir(file)
		name, _ := os.ReadFile(filepath.Join(dir, "comm"))
		if strings.Contains("\x00"+string(environ), "\x00HOSTNAME="+pod+"\x00") && strings.TrimSpace(string(name)) == program {
			pid, _ := strconv.Atoi(filepath.Base(dir))
			pids = append(pids, pid)
		}
	}
	return pids
}

// environment returns a process's environment.
func environment(t *testing.T, pid int) map[string]string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{}
	for v := range strings.SplitSeq(string(b), "\x00") {
		key, value, _ := strings.Cut(v, "=")
		env[key] = value
	}
	return env
}

// A verification is a run of fio.
type verification struct{ *process }

// fio writes and verifies a file in the guest's dir, for about half a minute.
func (g *guest) fio(t *testing.T, dir string) verification {
	t.Helper()
	p := g.start(t, "mkdir -p "+dir+"/fio; fio --name=verify --directory="+dir+"/fio --size=24M --bs=64k --rw=randwrite --rate=1M --direct=1 --ioengine=libaio --iodepth=8 "+
		"--verify=crc32c --do_verify=1 --verify_fatal=1 --verify_state_save=0 --output-format=json")
	eventually(t, time.Minute, func() error {
		_, err := g.start(t, "test $(du -k "+dir+"/fio/verify.0.0 | cut -f1) -gt 1000").result(t, time.Minute)
		return err
	})
	return verification{p}
}

// wait waits for the end, and logs the longest calls.
func (v verification) wait(t *testing.T, limit time.Duration) {
	t.Helper()
	said := v.process.wait(t, limit)
	type direction struct {
		Calls   int `json:"total_ios"`
		Latency struct {
			Max float64 // nanoseconds
		} `json:"clat_ns"`
	}
	var report struct {
		Jobs []struct {
			Error       int
			Read, Write direction
		}
	}
	if _, object, ok := strings.Cut(said, "{"); !ok || json.Unmarshal([]byte("{"+object), &report) != nil || len(report.Jobs) != 1 {
		t.Fatalf("fio reports %s", said)
	}
	j := report.Jobs[0]
	t.Logf("fio: error %d; %d writes, the longest took %.1f s; %d reads, verified, the longest took %.1f s", j.Error, j.Write.Calls, j.Write.Latency.Max/1e9, j.Read.Calls, j.Read.Latency.Max/1e9)
	if j.Error != 0 || j.Read.Calls != j.Write.Calls {
		t.Errorf("fio: error %d, %d reads of %d writes", j.Error, j.Read.Calls, j.Write.Calls)
	}
}

// moved waits until the export has another connection than before, and logs the time since begun.
func (ns *namespace) moved(t *testing.T, selector, name string, before connection, begun time.Time) connection {
	t.Helper()
	var now connection
	eventually(t, 3*time.Minute, func() error {
		for _, now = range ns.connections(t, selector, name) {
			if now.pod != before.pod || now.since.After(before.since) {
				return nil
			}
		}
		return fmt.Errorf("the client is not back")
	})
	t.Logf("the client came from %s to %s; it was there %.1f s after that ended", before.pod, now.pod, now.since.Sub(begun).Seconds())
	return now
}

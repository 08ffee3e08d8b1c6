package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// gateway is a gateway's process that serves one export.
type gateway struct {
	address map[listener]string
	admin   string
	pid     int
	stop    func() // ends the process and waits for its end
}

// listener has the settings in which a gateway's listeners differ. With tcp the others are unused.
type listener struct{ crc, spin, tcp bool }

// listeners of a gateway, in the order of its configuration.
var listeners = []listener{{crc: true}, {}, {crc: true, spin: true}, {spin: true}, {tcp: true}}

// spinning returns the spin time for the configuration.
func (l listener) spinning() string {
	if l.spin {
		return spin
	}
	return "0s"
}

// spin is the spin time of clients and gateways that spin.
const spin = "200us"

const (
	startWithin = 10 * time.Second
	stopWithin  = 10 * time.Second // after that it is killed
)

// startGateway serves a backend, given as in the configuration, with an inline threshold in KiB.
// The name is that of its files and must be unique in a run: a gateway follows changes of its
// configuration. The system chooses the ports; each listener has an IP address of its own, since
// metrics name a listener by its configured address.
func (s *sides) startGateway(ctx context.Context, name, backend string, inlineKiB int) (_ *gateway, err error) {
	return s.startGatewayWith(ctx, name, backend, "rpcRDMAVersions: [1]", inlineKiB)
}

// url is the address of a listener for sluicectl.
func (g *gateway) url(crc, spin bool) string {
	return "nfs+rdma://" + g.address[listener{crc: crc, spin: spin}] + "/"
}

// tcpURL is the address of the listener for TCP.
func (g *gateway) tcpURL() string { return "nfs+tcp://" + g.address[listener{tcp: true}] + "/" }

// startGatewayWith is startGateway with a configuration of versions.
func (s *sides) startGatewayWith(ctx context.Context, name, backend, versions string, inlineKiB int) (_ *gateway, err error) {
	config := filepath.Join(s.dir, name+".yaml")
	var written strings.Builder
	for i, l := range listeners {
		transport := fmt.Sprintf("network: rdma, provider: iwarp, options: {crc: %v, spin: %s}", l.crc, l.spinning())
		if l.tcp {
			transport = "network: tcp"
		}
		fmt.Fprintf(&written, "  - {%s, address: \"127.0.0.%d:0\"}\n", transport, i+1)
	}
	text := fmt.Sprintf(`apiVersion: config.sluice.dev/v1alpha1
kind: GatewayConfig
admin: {address: "127.0.0.1:0"}
log: {level: warn}
stateDir: %q
exports:
- name: bench
  listeners:
%s  backend: %s
  access: [{from: {networks: ["127.0.0.0/8"]}, mode: ReadWrite, squash: None}]
  limits: {connections: 2048, connectionsPerClient: 2048}
  transport: {%s, inlineThreshold: {call: %dKi, reply: %dKi}, credits: {policy: Static, max: 128}, remoteInvalidation: true}
`, filepath.Join(s.dir, name+".state"), written.String(), backend, versions, inlineKiB, inlineKiB)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return nil, err
	}
	running, end := context.WithCancel(context.Background())
	c := exec.CommandContext(running, filepath.Join(s.o.bin, "gateway"), "--pprof", "--config", config)
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.WaitDelay = stopWithin
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		end()
		return nil, err
	}
	g := &gateway{pid: c.Process.Pid, stop: func() { end(); _ = c.Wait() }}
	defer func() {
		if err != nil {
			g.stop()
		}
	}()
	lines := bufio.NewReader(out)
	for g.admin == "" {
		line, err := lines.ReadString('\n')
		if err != nil {
			return nil, errors.New("it ended before it said where its admin page is")
		}
		if page, ok := strings.CutPrefix(line, "admin page: http://"); ok {
			g.admin, _, _ = strings.Cut(page, "/")
		}
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	return g, g.ready(ctx)
}

// gatewayStatus is the part of /status that bench reads.
type gatewayStatus struct {
	Exports []struct {
		State, Error string
		Backend      struct {
			Healthy bool
			Error   string
		}
		Listeners []struct{ State, Address, Error string }
	}
}

// ready waits until the export is served on all listeners and its backend answers, and notes their
// addresses.
func (g *gateway) ready(ctx context.Context) error {
	for {
		err := g.look(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it is not ready: %w", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// look requests /status once. Its error describes the missing part.
func (g *gateway) look(ctx context.Context) error {
	body, err := g.get(ctx, "/status")
	if err != nil {
		return err
	}
	defer body.Close()
	var st gatewayStatus
	if err := json.NewDecoder(body).Decode(&st); err != nil {
		return err
	}
	if len(st.Exports) != 1 || len(st.Exports[0].Listeners) != len(listeners) {
		return fmt.Errorf("/status does not show one export with %d listeners", len(listeners))
	}
	e := st.Exports[0]
	if e.State != "Serving" {
		return fmt.Errorf("the export is %s: %s", e.State, e.Error)
	}
	if !e.Backend.Healthy {
		return fmt.Errorf("the backend does not answer: %s", e.Backend.Error)
	}
	address := map[listener]string{}
	for i, l := range e.Listeners {
		if l.State != "Listening" {
			return fmt.Errorf("a listener is %s: %s", l.State, l.Error)
		}
		address[listeners[i]] = l.Address
	}
	g.address = address
	return nil
}

// get requests a page of the admin server.
func (g *gateway) get(ctx context.Context, path string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+g.admin+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("%s: %s", path, resp.Status)
	}
	return resp.Body, nil
}

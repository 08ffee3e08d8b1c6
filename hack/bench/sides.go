package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// sides are the servers that are compared, each a process of its own, on one directory.
type sides struct {
	o       options
	dir     string
	gateway map[bool]string // address of the listener with and without CRC
	admin   string
	ganesha string // host:port?mountport=N
	floor   string
	stops   []func()
}

func startSides(ctx context.Context, o options) (_ *sides, err error) {
	s := &sides{o: o, gateway: map[bool]string{}}
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	base := o.dir
	if base == "" {
		base = "/dev/shm"
	}
	if s.dir, err = os.MkdirTemp(base, "sluice-bench-"); err != nil {
		return nil, err
	}
	s.stops = append(s.stops, func() { _ = os.RemoveAll(s.dir) })
	export := filepath.Join(s.dir, "export")
	if err := os.Mkdir(export, 0o755); err != nil {
		return nil, err
	}
	if err := s.startFloor(export); err != nil {
		return nil, fmt.Errorf("floor: %w", err)
	}
	if err := s.startGateway(ctx, export, 4, nil); err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	if err := s.startGanesha(export); err != nil {
		return nil, fmt.Errorf("NFS-Ganesha: %w", err)
	}
	return s, nil
}

func (s *sides) stop() {
	for i := len(s.stops) - 1; i >= 0; i-- {
		s.stops[i]()
	}
	s.stops = nil
}

// startFloor makes the file that the floor reads and writes, and a server for it.
func (s *sides) startFloor(export string) error {
	file := filepath.Join(export, "floor.dat")
	if err := os.WriteFile(file, make([]byte, s.o.fileSize), 0o644); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c := exec.Command(self, "-role", "floor-server", "-serve", file)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		return err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	s.stops = append(s.stops, func() { _ = in.Close(); _ = c.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	s.floor = strings.TrimSpace(line)
	return err
}

// startGateway serves export on a listener with CRC and one without, and an inline threshold of so many KiB. It sets
// the addresses in s, and appends what ends the process to stops, or to s's own when that is nil.
func (s *sides) startGateway(ctx context.Context, export string, inlineKiB int, stops *[]func()) error {
	if stops == nil {
		stops = &s.stops
	}
	ports, err := freePorts(3)
	if err != nil {
		return err
	}
	s.gateway[true], s.gateway[false], s.admin = ports[0], ports[1], ports[2]
	state := filepath.Join(s.dir, "state")
	config := filepath.Join(s.dir, fmt.Sprintf("gateway-%d.yaml", inlineKiB))
	text := fmt.Sprintf(`apiVersion: config.sluice.dev/v1alpha1
kind: GatewayConfig
admin: {address: %q}
log: {level: warn}
stateDir: %q
exports:
- name: bench
  listeners:
  - {network: rdma, provider: iwarp, address: %q, options: {crc: true}}
  - {network: rdma, provider: iwarp, address: %q, options: {crc: false}}
  backend: {volume: {path: %q}}
  access: [{from: {networks: ["127.0.0.0/8"]}, mode: ReadWrite, squash: None}]
  transport: {rpcRDMAVersions: [1], inlineThreshold: {call: %dKi, reply: %dKi}, credits: {policy: Static, max: 128}, remoteInvalidation: true}
`, s.admin, state, s.gateway[true], s.gateway[false], export, inlineKiB, inlineKiB)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return err
	}
	c := exec.Command(filepath.Join(s.o.bin, "gateway"), "--config", config)
	c.Stdout, c.Stderr = io.Discard, os.Stderr
	if err := c.Start(); err != nil {
		return err
	}
	*stops = append(*stops, func() { _ = c.Process.Signal(os.Interrupt); _ = c.Wait() })
	for _, a := range []string{s.gateway[true], s.gateway[false]} {
		if err := waitFor(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

func (s *sides) startGanesha(export string) error {
	ports, err := freePorts(2)
	if err != nil {
		return err
	}
	port, mount := portOf(ports[0]), portOf(ports[1])
	state := filepath.Join(s.dir, "ganesha")
	c := exec.Command("hack/ganesha/run", "--dir", export, "--port", port, "--mount-port", mount, "--state", state)
	c.Stderr = os.Stderr
	if err := c.Run(); err != nil {
		return err
	}
	s.stops = append(s.stops, func() { _ = exec.Command("hack/ganesha/run", "--stop", "--state", state).Run() })
	s.ganesha = "127.0.0.1:" + port + "/?mountport=" + mount
	return nil
}

// round measures every side once.
func (s *sides) round(ctx context.Context, op operation, r row, got samples) error {
	floor := floorRequest{op: op.floor, size: uint32(op.size), crc: r.CRC, file: true}
	raw := floorRequest{op: op.floor, size: uint32(op.size)}
	for _, side := range []struct {
		name string
		run  func() (result, error)
	}{
		{"sluice", func() (result, error) { return s.rdma(ctx, op, r.Depth, r.CRC, 4).result() }},
		{"ganesha", func() (result, error) {
			return s.client(ctx, op, r.Depth, "nfs+tcp://"+s.ganesha).result()
		}},
		{"floor", func() (result, error) { return s.floorRun(floor, r.Depth) }},
		{"raw", func() (result, error) { return s.floorRun(raw, r.Depth) }},
	} {
		v, err := side.run()
		if err != nil {
			return fmt.Errorf("%s: %w", side.name, err)
		}
		figure := v.Rate
		switch r.Unit {
		case "us":
			figure = v.P50
		case "MB/s":
			figure = v.Rate * float64(op.size) / 1e6
		}
		got[side.name] = append(got[side.name], figure)
	}
	return ctx.Err()
}

// floorRun runs the floor's client in a process of its own, like every other client here.
func (s *sides) floorRun(r floorRequest, depth int) (result, error) {
	blocks := uint32(1)
	if r.size > 0 {
		blocks = uint32(s.o.fileSize / int64(r.size))
	}
	self, err := os.Executable()
	if err != nil {
		return result{}, err
	}
	var h [floorHeader]byte
	r.put(h[:])
	c := exec.Command(self, "-role", "floor-client", "-serve", s.floor, "-floor", hex.EncodeToString(h[:]), "-depth", strconv.Itoa(depth),
		"-blocks", strconv.Itoa(int(blocks)), "-d", s.o.duration.String())
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err != nil {
		return result{}, err
	}
	var v result
	err = json.Unmarshal(out, &v)
	return v, err
}

func (s *sides) rdma(ctx context.Context, op operation, depth int, crc bool, inlineKiB int) measured {
	onoff := "off"
	if crc {
		onoff = "on"
	}
	return s.client(ctx, op, depth, "nfs+rdma://"+s.gateway[crc]+"/", "--crc", onoff, "--inline", strconv.Itoa(inlineKiB<<10))
}

// measured is what `sluicectl bench --json` printed, or why it did not.
type measured struct {
	Rate     float64 `json:"ops_per_s"`
	MB       float64 `json:"mb_per_s"`
	P50      float64 `json:"p50_us"`
	Ops      float64 `json:"ops"`
	Allocs   float64 `json:"allocs_per_op"`
	Syscalls float64 `json:"syscalls_per_op"`
	Messages float64 `json:"messages_per_op"`
	RDMAOps  float64 `json:"rdma_ops_per_op"`
	err      error
}

func (m measured) result() (result, error) { return result{Rate: m.Rate, P50: m.P50}, m.err }

// client runs sluicectl bench.
func (s *sides) client(ctx context.Context, op operation, depth int, url string, flags ...string) (m measured) {
	args := append([]string{"bench", url, "--json", "--op", op.op, "--depth", strconv.Itoa(depth), "--duration", s.o.duration.String(),
		"--warmup", "50ms", "--file-size", strconv.FormatInt(s.o.fileSize, 10)}, flags...)
	if op.size > 0 {
		args = append(args, "--size", strconv.Itoa(op.size))
	}
	c := exec.CommandContext(ctx, filepath.Join(s.o.bin, "sluicectl"), args...)
	var stderr strings.Builder
	c.Stderr = &stderr
	out, err := c.Output()
	if err == nil {
		err = json.Unmarshal(out, &m)
	}
	if err != nil {
		m.err = fmt.Errorf("sluicectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return m
}

// freePorts returns n addresses on loopback that nobody listened on a moment ago.
func freePorts(n int) ([]string, error) {
	var addrs []string
	var held []net.Listener
	defer func() {
		for _, l := range held {
			_ = l.Close()
		}
	}()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		held = append(held, l)
		addrs = append(addrs, l.Addr().String())
	}
	return addrs, nil
}

func portOf(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}

func waitFor(ctx context.Context, addr string) error {
	for range 200 {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			return c.Close()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	return errors.New("nothing answers on " + addr)
}

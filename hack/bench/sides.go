package main

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// sides are the servers to compare, each a process of its own, on one directory.
type sides struct {
	o          options
	dir        string
	volume     *gateway // serves the directory
	proxy      *gateway // in front of Ganesha
	ganesha    string   // host:port/?mountport=N
	ganeshaPID int
	relay      string // to Ganesha, in the same form
	floor      string
	stops      []func()
}

func startSides(ctx context.Context, o options) (_ *sides, err error) {
	s := &sides{o: o}
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
	if s.volume, err = s.startGateway(ctx, "volume", volumeBackend(export), plainInline); err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	s.stops = append(s.stops, s.volume.stop)
	backend, err := s.startGanesha(ctx, export)
	if err != nil {
		return nil, fmt.Errorf("NFS-Ganesha: %w", err)
	}
	if s.proxy, err = s.startGateway(ctx, "proxy", backend, plainInline); err != nil {
		return nil, fmt.Errorf("gateway in front of NFS-Ganesha: %w", err)
	}
	s.stops = append(s.stops, s.proxy.stop)
	return s, nil
}

// plainInline is the inline threshold of all rows but the sweep's, in KiB.
const plainInline = 4

func volumeBackend(dir string) string { return fmt.Sprintf("{volume: {path: %q}}", dir) }

func (s *sides) stop() {
	for i := len(s.stops) - 1; i >= 0; i-- {
		s.stops[i]()
	}
	s.stops = nil
}

// startFloor makes the file that the floor reads and writes, and a server for it.
func (s *sides) startFloor(export string) error {
	file := filepath.Join(export, "floor.dat")
	err := os.WriteFile(file, make([]byte, s.o.fileSize), 0o644)
	if err == nil {
		s.floor, err = s.startSelf("floor-server", file)
	}
	return err
}

// startSelf starts a server of bench itself, and returns its address.
func (s *sides) startSelf(role, serve string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	c := exec.Command(self, "-role", role, "-serve", serve)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		return "", err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := c.Start(); err != nil {
		return "", err
	}
	s.stops = append(s.stops, func() { _ = in.Close(); _ = c.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	return strings.TrimSpace(line), err
}

// startGanesha returns the backend for a gateway's configuration.
func (s *sides) startGanesha(ctx context.Context, export string) (backend string, err error) {
	state := filepath.Join(s.dir, "ganesha")
	ports, err := fixedPorts(2)
	if err != nil {
		return "", err
	}
	port, mount := strconv.Itoa(ports[0]), strconv.Itoa(ports[1])
	c := exec.CommandContext(ctx, "hack/ganesha/run", "--dir", export, "--port", port, "--mount-port", mount, "--state", state)
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err != nil {
		return "", err
	}
	s.stops = append(s.stops, func() { _ = exec.Command("hack/ganesha/run", "--stop", "--state", state).Run() })
	if s.ganeshaPID, err = strconv.Atoi(strings.TrimSpace(string(out))); err != nil {
		return "", fmt.Errorf("its process number: %w", err)
	}
	relay, err := s.startSelf("relay", "127.0.0.1:"+port)
	if err != nil {
		return "", fmt.Errorf("relay: %w", err)
	}
	s.ganesha, s.relay = "127.0.0.1:"+port+"/?mountport="+mount, relay+"/?mountport="+mount
	return fmt.Sprintf(`{nfs: {server: "127.0.0.1", port: %s, mountPort: %s, path: /, versions: ["3"]}}`, port, mount), nil
}

// fixedPorts returns n ports on loopback, for a server that cannot choose its own. They are unused
// and lie below the system's ephemeral ports, so that no connection takes one before the server
// does.
func fixedPorts(n int) ([]int, error) {
	const lowest, handedOut = 10000, 32768
	var ports []int
	for range 1000 {
		p := lowest + rand.IntN(handedOut-lowest)
		l, err := net.Listen("tcp", ":"+strconv.Itoa(p))
		if err != nil || slices.Contains(ports, p) {
			continue
		}
		_ = l.Close()
		if ports = append(ports, p); len(ports) == n {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("no %d free ports from %d to %d", n, lowest, handedOut-1)
}

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
	relay      string   // to Ganesha, in the same form
	disk       *place   // on a disk, as soon as it is needed
	version2   *gateway // with version 2 and its extensions, likewise
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
	g, err := s.startGanesha(ctx, export, filepath.Join(s.dir, "ganesha"))
	if err != nil {
		return nil, err
	}
	relay, err := s.startSelf("relay", "127.0.0.1:"+g.port)
	if err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	s.ganesha, s.ganeshaPID, s.relay = g.address(), g.pid, relay+"/?mountport="+g.mount
	backend := fmt.Sprintf(`{nfs: {server: "127.0.0.1", port: %s, mountPort: %s, path: /, versions: ["3"]}}`, g.port, g.mount)
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

// floorFile is the name of the floor's file in the exported directory.
const floorFile = "floor.dat"

// startFloor makes the file that the floor reads and writes, and a server for it.
func (s *sides) startFloor(export string) error {
	file := filepath.Join(export, floorFile)
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

// ganesha is a process of NFS-Ganesha.
type ganesha struct {
	port, mount string
	pid         int
}

// address is that for sluicectl, without the scheme.
func (g *ganesha) address() string { return "127.0.0.1:" + g.port + "/?mountport=" + g.mount }

// startGanesha serves a directory with its files in state.
func (s *sides) startGanesha(ctx context.Context, export, state string) (*ganesha, error) {
	ports, err := fixedPorts(2)
	if err != nil {
		return nil, err
	}
	g := &ganesha{port: strconv.Itoa(ports[0]), mount: strconv.Itoa(ports[1])}
	c := exec.CommandContext(ctx, "hack/ganesha/run", "--dir", export, "--port", g.port, "--mount-port", g.mount, "--state", state)
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("NFS-Ganesha: %w", err)
	}
	s.stops = append(s.stops, func() { _ = exec.Command("hack/ganesha/run", "--stop", "--state", state).Run() })
	if g.pid, err = strconv.Atoi(strings.TrimSpace(string(out))); err != nil {
		return nil, fmt.Errorf("NFS-Ganesha's process number: %w", err)
	}
	return g, nil
}

// place is a directory with a gateway and a Ganesha that serve it.
type place struct {
	gateway    *gateway
	ganesha    string // as sides.ganesha
	ganeshaPID int
}

// tmpfs is the place that all rows but those of a disk measure.
func (s *sides) tmpfs(context.Context) (*place, error) {
	return &place{s.volume, s.ganesha, s.ganeshaPID}, nil
}

// onDisk starts servers for a directory on a disk, at its first call.
func (s *sides) onDisk(ctx context.Context) (*place, error) {
	if s.disk != nil {
		return s.disk, nil
	}
	dir, err := os.MkdirTemp(s.o.disk, "sluice-bench-")
	if err != nil {
		return nil, fmt.Errorf("-disk: %w", err)
	}
	s.stops = append(s.stops, func() { _ = os.RemoveAll(dir) })
	g, err := s.startGateway(ctx, "disk", volumeBackend(dir), plainInline)
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	s.stops = append(s.stops, g.stop)
	other, err := s.startGanesha(ctx, dir, filepath.Join(s.dir, "ganesha-disk"))
	if err != nil {
		return nil, err
	}
	s.disk = &place{g, other.address(), other.pid}
	return s.disk, nil
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

//go:build kernel

package kernel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/test/kernel/pattern"
)

// TestLinuxClient mounts the gateway with the kernel's NFS/RDMA client, by version 3.
// testdata/client.sh has the checks.
func TestLinuxClient(t *testing.T) {
	onKernels(t, []string{linux61}, func(t *testing.T, kernel string) { testLinuxClient(t, kernel, "3", "rdma") })
}

// TestLinuxClient4 is TestLinuxClient with versions 4.1 and 4.2, over RDMA and TCP: with -full all
// of them.
func TestLinuxClient4(t *testing.T) {
	onKernels(t, []string{linux61}, func(t *testing.T, kernel string) {
		for _, way := range [][2]string{{"4.2", "rdma"}, {"4.2", "tcp"}, {"4.1", "rdma"}, {"4.1", "tcp"}} {
			if *full || way == [2]string{"4.2", "rdma"} {
				t.Run(way[0]+"-"+way[1], func(t *testing.T) { testLinuxClient(t, kernel, way[0], way[1]) })
			}
		}
	})
}

func testLinuxClient(t *testing.T, kernel, version, proto string) {
	c := &linuxClient{host: newHost(t, newGateway(t, "gateway", volumes(t)...))}
	if err := c.fill(t); err != nil {
		t.Fatal(err)
	}
	c.path = "write_chunk"
	port, cut := c.data.rdma, "CUT=%d "+fmt.Sprint(c.data.tcp)+" /"
	if proto == "tcp" {
		port, cut = c.data.tcp, "CUT=0 %d /"
		c.path = "stream"
	}
	c.relay = startRelay(t, fmt.Sprintf("127.0.0.1:%d", port), 12)
	c.boot(t, kernel, 20*time.Minute, "client.sh", c.answer, "-e", "VERS="+version, "-e", "PROTO="+proto, "-e", fmt.Sprintf(cut, c.relay.port()))
	c.guest.follow(t)
	if *only != "" {
		return
	}
	if proto == "rdma" {
		t.Run("mountstats", func(t *testing.T) { c.guest.mountstats(t, version+"-restart", version+"-cut") })
	}
	for _, name := range []string{"data", "plain"} {
		if proto == "tcp" { // the captures are of the RDMA ports
			break
		}
		t.Run("tshark/"+name, func(t *testing.T) {
			e := c.gateway.exports[name]
			dissect(t, filepath.Join(c.guest.out, "tour-"+strings.ToUpper(name)+".pcapng"), version, map[string]bool{
				"CRC": e.crc, "Sends with Invalidate": name == "data",
			})
		})
	}
	t.Run("gateway", c.gateway.endsWell)
}

// linuxClient is the host's side of testdata/client.sh.
type linuxClient struct {
	*host
	relay *relay
	path  string // of sluice_bytes_total, by which it reads
}

// fill makes the files that the client reads.
func (c *linuxClient) fill(t *testing.T) error {
	for _, e := range []string{"data", "plain"} {
		tour := filepath.Join(c.gateway.exports[e].volume, "tour")
		for i := range 299 {
			write(t, filepath.Join(tour, fmt.Sprintf("a-file-with-a-rather-long-name-%03d", i)), "")
		}
		write(t, filepath.Join(tour, "entry-200003"), string(pattern.File{Length: 200003}.Content(0)))
	}
	guarded := c.gateway.exports["guarded"].volume
	write(t, filepath.Join(guarded, "open"), "for all\n")
	write(t, filepath.Join(guarded, "secret"), "secret\n")
	return errors.Join(os.Chmod(filepath.Join(guarded, "secret"), 0o600), os.Mkdir(filepath.Join(guarded, "closed"), 0o700))
}

func (c *linuxClient) answer(t *testing.T, words []string) (known bool, err error) {
	do, args := words[0], words[1:]
	switch {
	case do == "cuts" && len(args) == 0:
		if n := c.relay.cuts.Load(); n < c.relay.limit {
			return true, fmt.Errorf("connections were cut %d times, must be %d", n, c.relay.limit)
		}
		return true, nil
	case do == "version" && len(args) == 0:
		return true, c.speaksVersion1()
	case do == "kill" && len(args) == 2:
		size, err := strconv.ParseInt(args[1], 10, 64)
		return true, errors.Join(err, c.killWhileWritten(t, args[0], size))
	case do == "drain" && len(args) == 0:
		return true, c.drainWhileRead(t)
	}
	return false, nil
}

// speaksVersion1 checks that the kernel took version 1 where "data" offers both.
func (c *linuxClient) speaksVersion1() error {
	one, err1 := c.gateway.metric("sluice_rdma_connections", `export="data"`, `version="1"`)
	two, err2 := c.gateway.metric("sluice_rdma_connections", `export="data"`, `version="2"`)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if one < 1 || two > 0 {
		return fmt.Errorf("%g connections have version 1, and %g version 2", one, two)
	}
	return nil
}

// killWhileWritten kills the gateway when a part of the file is there, and starts it again.
func (c *linuxClient) killWhileWritten(t *testing.T, name string, size int64) error {
	written := func() int64 {
		info, err := os.Stat(c.inVolume(name))
		if err != nil {
			return 0
		}
		return info.Size()
	}
	for begun := time.Now(); written() < size/8; time.Sleep(time.Millisecond) {
		if time.Since(begun) > patience {
			return fmt.Errorf("after %v %s has %d of %d bytes", patience, name, written(), size)
		}
	}
	if err := c.gateway.kill(); err != nil {
		return err
	}
	n := written()
	t.Logf("killed when %s had %d of %d bytes", name, n, size)
	if n >= size {
		return fmt.Errorf("%s had all its %d bytes when the gateway was killed", name, n)
	}
	return c.gateway.start()
}

// drainWhileRead drains the gateway while a file is read, and starts it again.
func (c *linuxClient) drainWhileRead(t *testing.T) error {
	if err := c.gateway.sends("data", c.path); err != nil {
		return err
	}
	begun := time.Now()
	if err := c.gateway.drain(); err != nil {
		return err
	}
	t.Logf("drained in %v", time.Since(begun).Round(time.Millisecond))
	return c.gateway.start()
}

//go:build kernel

package kernel

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/test/kernel/pattern"
)

// TestLinuxClient mounts the gateway with the kernel's NFS/RDMA client. testdata/client.sh has the checks.
func TestLinuxClient(t *testing.T) {
	needGuest(t)
	h := &host{gateway: newGateway(t)}
	if err := h.fill(t); err != nil {
		t.Fatal(err)
	}
	data := h.gateway.exports["data"]
	h.relay = startRelay(t, fmt.Sprintf("127.0.0.1:%d", data.rdma), 12)
	options := []string{"-e", "SERVER=10.0.2.2", "-e", "TREE=" + h.archive, "-e", fmt.Sprintf("CUT=%d %d /", h.relay.port(), data.tcp)}
	for name, e := range h.gateway.exports {
		options = append(options, "-e", strings.ToUpper(name)+"="+e.spec())
	}
	h.guest = boot(t, 10*time.Minute, "client.sh", options, h.answer)
	h.guest.follow(t)
	if *only != "" {
		return
	}
	t.Run("mountstats", h.mountstats)
	for _, name := range []string{"data", "plain"} {
		t.Run("tshark/"+name, func(t *testing.T) {
			e := h.gateway.exports[name]
			dissect(t, filepath.Join(h.guest.out, "tour-"+strings.ToUpper(name)+".pcapng"), map[string]bool{
				"CRC": e.crc, "Sends with Invalidate": e.transport == "",
			})
		})
	}
	t.Run("gateway", func(t *testing.T) {
		if err := h.gateway.drain(); err != nil {
			t.Error(err)
		}
		h.gateway.checkLog(t)
	})
}

// host is the test's side of testdata/client.sh: what is served, and what the script asks for.
type host struct {
	gateway *gateway
	guest   *guest
	archive string // of a source tree
	tree    string // the same, unpacked
	capture *capture
	relay   *relay
}

// fill makes what the client is to find.
func (h *host) fill(t *testing.T) error {
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return err
	}
	h.tree = filepath.Join(strings.TrimSpace(string(goroot)), "src/net/http")
	h.archive = filepath.Join(folder(t, "."), "tree.tar")
	if said, err := exec.Command("tar", "-C", filepath.Dir(h.tree), "-cf", h.archive, "http").CombinedOutput(); err != nil {
		return fmt.Errorf("tar: %w\n%s", err, said)
	}
	write := func(dir, name, content string) {
		err = errors.Join(err, os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	}
	for _, e := range []string{"data", "plain"} {
		tour := filepath.Join(h.gateway.exports[e].volume, "tour")
		for i := range 299 {
			write(tour, fmt.Sprintf("a-file-with-a-rather-long-name-%03d", i), "")
		}
		write(tour, "entry-200003", string(pattern.File{Length: 200003}.Content(0)))
	}
	for i := range 5000 {
		write(filepath.Join(h.gateway.exports["data"].volume, "many"), fmt.Sprintf("entry %d", i), "123456\n")
	}
	guarded := h.gateway.exports["guarded"].volume
	write(guarded, "open", "for all\n")
	write(guarded, "secret", "secret\n")
	return errors.Join(err, os.Chmod(filepath.Join(guarded, "secret"), 0o600), os.Mkdir(filepath.Join(guarded, "closed"), 0o700))
}

// data is a path in the volume that the script has mounted most of the time.
func (h *host) data(path string) string { return filepath.Join(h.gateway.exports["data"].volume, path) }

func (h *host) answer(t *testing.T, words []string) error {
	do, args := words[0], words[1:]
	switch {
	case do == "capture" && slices.Equal(args, []string{"start"}):
		var err error
		h.capture, err = startCapture(t, filepath.Join(h.guest.out, "tour.pcapng"), h.gateway.exports["data"].rdma, h.gateway.exports["plain"].rdma)
		return err
	case do == "capture" && len(args) == 1:
		if err := h.capture.stop(); err != nil {
			return err
		}
		return os.Rename(h.capture.file, filepath.Join(h.guest.out, args[0]+".pcapng"))
	case do == "compare" && len(args) == 1:
		return compareTrees(h.tree, h.data(args[0]+"/http"))
	case do == "files" && len(args) == 2:
		round, err := strconv.Atoi(args[1])
		return errors.Join(err, compareFiles(h.data(args[0]), round))
	case do == "listing" && len(args) == 1:
		return h.listing(args[0])
	case do == "same" && len(args) == 1:
		return h.same(args[0])
	case do == "checksum" && len(args) == 1:
		return h.checksum(args[0])
	case do == "cuts" && len(args) == 0:
		if n := h.relay.cuts.Load(); n < h.relay.limit {
			return fmt.Errorf("connections were cut %d times, must be %d", n, h.relay.limit)
		}
		return nil
	case do == "kill" && len(args) == 2:
		size, err := strconv.ParseInt(args[1], 10, 64)
		return errors.Join(err, h.killWhileWritten(t, args[0], size))
	case do == "drain" && len(args) == 0:
		return h.drainWhileRead(t)
	}
	return fmt.Errorf("unknown request %q", words)
}

// compareTrees makes sure that two directories hold the same names and files.
func compareTrees(want, got string) error {
	read := func(root string) (map[string]string, error) {
		all := map[string]string{}
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			name := strings.TrimPrefix(path, root)
			if d.IsDir() {
				all[name] = "a directory"
				return nil
			}
			b, err := os.ReadFile(path)
			all[name] = string(b)
			return err
		})
		return all, err
	}
	w, err1 := read(want)
	g, err2 := read(got)
	err := errors.Join(err1, err2)
	for name := range w {
		if c, ok := g[name]; !ok {
			err = errors.Join(err, fmt.Errorf("%s is missing", got+name))
		} else if c != w[name] {
			err = errors.Join(err, fmt.Errorf("%s %s", got+name, pattern.Differ([]byte(c), []byte(w[name]))))
		}
	}
	if err == nil && len(g) != len(w) {
		err = fmt.Errorf("%s has %d names, must have %d", got, len(g), len(w))
	}
	return err
}

// compareFiles makes sure that a directory holds exactly the files of package pattern.
func compareFiles(dir string, round int) error {
	entries, err := os.ReadDir(dir)
	if err == nil && len(entries) != len(pattern.Files()) {
		err = fmt.Errorf("%s has %d files, must have %d", dir, len(entries), len(pattern.Files()))
	}
	for _, f := range pattern.Files() {
		got, err1 := os.ReadFile(filepath.Join(dir, f.Name()))
		err = errors.Join(err, err1)
		if d := pattern.Differ(got, f.Content(round)); err1 == nil && d != "" {
			err = errors.Join(err, fmt.Errorf("%s in %s %s", f.Name(), dir, d))
		}
	}
	return err
}

// listing compares the names that the client listed with those in a directory.
func (h *host) listing(name string) error {
	said, err1 := h.guest.read(name)
	entries, err2 := os.ReadDir(h.data(name))
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	times := map[string]int{}
	for line := range strings.Lines(said) {
		times[strings.TrimSuffix(line, "\n")]++
	}
	for _, e := range entries {
		if times[e.Name()] != 1 {
			return fmt.Errorf("%q was listed %d times", e.Name(), times[e.Name()])
		}
		delete(times, e.Name())
	}
	if len(times) > 0 {
		return fmt.Errorf("names were listed that are not there: %q", slices.Sorted(maps.Keys(times)))
	}
	return nil
}

// same compares what the client's stat(2) says of all that is in a directory with what the host's says.
func (h *host) same(name string) error {
	said, err := h.guest.read(name)
	if err != nil {
		return err
	}
	list := exec.Command("bash", "-c", `. "$0" && list "$1"`, filepath.Join(root, "test/kernel/testdata/lib.sh"), h.data(name))
	list.Env = append(os.Environ(), "LC_ALL=C.UTF-8")
	is, err := list.Output()
	if err != nil {
		return fmt.Errorf("listing on the host: %w", err)
	}
	got, want := strings.Split(said, "\n"), strings.Split(string(is), "\n")
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return fmt.Errorf("the client sees\n  %s\nthe host has\n  %s", got[i], want[i])
		}
	}
	if len(got) != len(want) || len(got) < 10 {
		return fmt.Errorf("the client sees %d things in %s, the host has %d", len(got), name, len(want))
	}
	return nil
}

func (h *host) checksum(name string) error {
	said, err1 := h.guest.read(name)
	b, err2 := os.ReadFile(h.data(name))
	if want := fmt.Sprintf("%x", sha256.Sum256(b)); err1 == nil && err2 == nil && !strings.HasPrefix(said, want+" ") {
		return fmt.Errorf("the client's checksum of %s is %s, the host's is %s", name, said, want)
	}
	return errors.Join(err1, err2)
}

// killWhileWritten kills the gateway when a part of a file is there, and starts it again.
func (h *host) killWhileWritten(t *testing.T, name string, size int64) error {
	written := func() int64 {
		info, err := os.Stat(h.data(name))
		if err != nil {
			return 0
		}
		return info.Size()
	}
	for begun := time.Now(); written() < size/8; time.Sleep(time.Millisecond) {
		if time.Since(begun) > time.Minute {
			return fmt.Errorf("after a minute %s has %d of %d bytes", name, written(), size)
		}
	}
	if err := h.gateway.kill(); err != nil {
		return err
	}
	n := written()
	t.Logf("killed when %s had %d of %d bytes", name, n, size)
	if n >= size {
		return fmt.Errorf("%s had all its %d bytes when the gateway was killed", name, n)
	}
	return h.gateway.start()
}

// drainWhileRead ends the gateway in order while a file is being read, and starts it again.
func (h *host) drainWhileRead(t *testing.T) error {
	var before float64
	for begun := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		n, err := h.gateway.placed("data")
		if err != nil {
			return err
		}
		if before == 0 {
			before = n + 1
		} else if n > before+1<<20 {
			break
		}
		if time.Since(begun) > time.Minute {
			return errors.New("after a minute nobody reads")
		}
	}
	begun := time.Now()
	if err := h.gateway.drain(); err != nil {
		return err
	}
	t.Logf("drained in %v", time.Since(begun).Round(time.Millisecond))
	return h.gateway.start()
}

// mountstats looks at what the kernel's transports say of themselves.
func (h *host) mountstats(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(h.guest.out, "mountstats.*"))
	if err != nil || len(files) < 5 {
		t.Fatalf("the guest left %d files of statistics (%v)", len(files), err)
	}
	trace, err := h.guest.read("trace")
	if err != nil {
		t.Fatal(err)
	}
	var sum transport
	for _, file := range files {
		name := strings.TrimPrefix(filepath.Ext(file), ".")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tr, err := parseMountstats(string(text), "/mnt")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		t.Logf("%-12s %v", name, tr)
		sum.readChunks += tr.readChunks
		sum.writeChunks += tr.writeChunks
		sum.replyChunks += tr.replyChunks
		if tr.badReply != 0 || tr.badXIDs != 0 {
			t.Errorf("%s: bad_reply %d, bad XIDs %d, must both be 0", name, tr.badReply, tr.badXIDs)
		}
		sum.failedMarshal += tr.failedMarshal
		if strings.HasPrefix(name, "tour") && tr.failedMarshal != 0 {
			t.Errorf("%s: failed_marshal %d, must be 0", name, tr.failedMarshal)
		}
		if (name == "restart" || name == "cut") != (tr.connects > 1) {
			t.Errorf("%s: %d connects", name, tr.connects)
		}
	}
	if sum.readChunks == 0 || sum.writeChunks == 0 || sum.replyChunks == 0 {
		t.Errorf("Read chunks %d, Write chunks %d, Reply chunks %d: all must be used", sum.readChunks, sum.writeChunks, sum.replyChunks)
	}
	t.Logf("together: Read chunks %d, Write chunks %d, Reply chunks %d", sum.readChunks, sum.writeChunks, sum.replyChunks)

	putOff, failed := marshalFailures(trace)
	t.Logf("%d times a call was put off to make more memory regions, which the kernel counts as failed_marshal too; %d calls failed", putOff, failed)
	if failed > 0 || putOff < int(sum.failedMarshal) { // not each mount leaves statistics
		t.Errorf("%d calls could not be encoded, %d were put off, failed_marshal is %d", failed, putOff, sum.failedMarshal)
	}
}

var gatewayTrouble = regexp.MustCompile(`panic|^goroutine |level=(ERROR|WARN)|"protocol errors"=[1-9]`)

// checkLog makes sure that the gateway had nothing to complain of.
func (g *gateway) checkLog(t *testing.T) {
	t.Helper()
	log, err := os.ReadFile(g.log.Name())
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(log) {
		if gatewayTrouble.Match(line) {
			t.Errorf("the gateway says: %s", bytes.TrimSpace(line))
		}
	}
}

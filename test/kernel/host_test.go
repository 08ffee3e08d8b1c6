//go:build kernel

package kernel

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/test/kernel/pattern"
)

// host is the host's side of a guest whose script uses testdata/checks.sh: it serves the exports
// and answers the requests of the checks.
type host struct {
	gateway *gateway
	data    *export // mounted most of the time
	guest   *guest
	archive string // of a source tree
	tree    string // the same, unpacked
	capture *capture
}

// newHost makes the source tree, and 5,000 files in the volume of the export "data" if that is on
// this host.
func newHost(t *testing.T, g *gateway) *host {
	t.Helper()
	h := &host{gateway: g, data: g.exports["data"]}
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	h.tree = filepath.Join(strings.TrimSpace(string(goroot)), "src/net/http")
	h.archive = filepath.Join(folder(t, "."), "tree.tar")
	if said, err := exec.Command("tar", "-C", filepath.Dir(h.tree), "-cf", h.archive, "http").CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, said)
	}
	if h.data == nil || h.data.volume == "" {
		return h
	}
	for i := range 5000 {
		write(t, filepath.Join(h.data.volume, "many", fmt.Sprintf("entry %d", i)), "123456\n")
	}
	return h
}

// write makes a file and its parent directory.
func write(t *testing.T, name, content string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(content), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// boot starts the guest. The script gets the gateway's exports as arguments unless options say
// otherwise. Requests go to answer first, then to the checks' own.
func (h *host) boot(t *testing.T, kernel string, limit time.Duration, script string, answer func(*testing.T, []string) (known bool, err error), options ...string) {
	t.Helper()
	all := []string{"-e", "SERVER=10.0.2.2", "-e", "TREE=" + h.archive}
	for name, e := range h.gateway.exports {
		all = append(all, "-e", strings.ToUpper(name)+"="+e.spec())
	}
	h.guest = boot(t, kernel, limit, script, append(all, options...), func(t *testing.T, words []string) error {
		if known, err := answer(t, words); known {
			return err
		}
		return h.answer(t, words)
	})
}

// inVolume returns a path in the volume that the script has mounted most of the time.
func (h *host) inVolume(path string) string { return filepath.Join(h.data.volume, path) }

func (h *host) answer(t *testing.T, words []string) error {
	do, args := words[0], words[1:]
	switch {
	case do == "capture" && slices.Equal(args, []string{"start"}):
		var ports []int
		for _, e := range h.gateway.exports {
			ports = append(ports, e.rdma)
		}
		var err error
		h.capture, err = startCapture(t, filepath.Join(h.guest.out, "running.pcapng"), ports...)
		return err
	case do == "capture" && len(args) == 1:
		if err := h.capture.stop(); err != nil {
			return err
		}
		return os.Rename(h.capture.file, filepath.Join(h.guest.out, args[0]+".pcapng"))
	case do == "compare" && len(args) == 1:
		return compareTrees(h.tree, h.inVolume(args[0]+"/http"))
	case do == "files" && len(args) == 2:
		round, err := strconv.Atoi(args[1])
		return errors.Join(err, compareFiles(h.inVolume(args[0]), round))
	case do == "listing" && len(args) == 1:
		return h.listing(args[0])
	case do == "same" && len(args) == 1:
		return h.same(args[0])
	case do == "checksum" && len(args) == 1:
		return h.checksum(args[0])
	}
	return fmt.Errorf("unknown request %q", words)
}

// compareTrees checks that two directories hold the same names and contents.
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

// compareFiles checks that a directory holds exactly the files of package pattern.
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

// listing compares the client's listing with the directory.
func (h *host) listing(name string) error {
	said, err1 := h.guest.read(name)
	entries, err2 := os.ReadDir(h.inVolume(name))
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

// same compares the client's stat(2) of a directory's entries with the host's.
func (h *host) same(name string) error {
	said, err := h.guest.read(name)
	if err != nil {
		return err
	}
	list := exec.Command("bash", "-c", `. "$0" && list "$1"`, filepath.Join(root, "test/kernel/testdata/lib.sh"), h.inVolume(name))
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
	b, err2 := os.ReadFile(h.inVolume(name))
	if want := fmt.Sprintf("%x", sha256.Sum256(b)); err1 == nil && err2 == nil && !strings.HasPrefix(said, want+" ") {
		return fmt.Errorf("the client's checksum of %s is %s, the host's is %s", name, said, want)
	}
	return errors.Join(err1, err2)
}

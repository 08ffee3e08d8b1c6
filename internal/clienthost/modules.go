package clienthost

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// modules loads modules of the running kernel. Like modprobe(8) it follows modules.dep; unlike it,
// it reads no configuration.
type modules struct {
	dir     string // of all releases: /lib/modules
	sys     string // /sys
	release string // of the running kernel
	insert  func(file string, compressed bool) error
}

// moduleName returns the kernel's name of a module's file.
func moduleName(file string) string {
	name, _, _ := strings.Cut(path.Base(file), ".ko")
	return strings.ReplaceAll(name, "-", "_")
}

func (m *modules) loaded(name string) bool {
	_, err := os.Stat(filepath.Join(m.sys, "module", name))
	return err == nil
}

// users returns how many mounts, programs and modules use a module.
func (m *modules) users(name string) int {
	text, err := os.ReadFile(filepath.Join(m.sys, "module", name, "refcnt"))
	if err != nil { // not loaded, or built in
		return 0
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return n
}

// load loads a module and those that it depends on.
func (m *modules) load(name string) error {
	if m.loaded(name) {
		return nil
	}
	dir := filepath.Join(m.dir, m.release)
	dependencies, err := os.ReadFile(filepath.Join(dir, "modules.dep"))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("module %s: %s has no modules.dep: install the modules of the running kernel on the node", name, dir)
	} else if err != nil {
		return fmt.Errorf("module %s: %w", name, err)
	}
	for line := range strings.Lines(string(dependencies)) {
		file, needs, found := strings.Cut(strings.TrimSpace(line), ":")
		if !found || moduleName(file) != name {
			continue
		}
		files := append([]string{file}, strings.Fields(needs)...)
		slices.Reverse(files) // the last one depends on no other
		for _, f := range files {
			if err := m.loadFile(dir, f); err != nil {
				return fmt.Errorf("module %s: %w", name, err)
			}
		}
		return nil
	}
	builtin, _ := os.ReadFile(filepath.Join(dir, "modules.builtin"))
	for line := range strings.Lines(string(builtin)) {
		if moduleName(strings.TrimSpace(line)) == name {
			return nil
		}
	}
	return fmt.Errorf("module %s: not in %s: the node's distribution has it in another package, or does not build it", name, dir)
}

func (m *modules) loadFile(dir, file string) error {
	if m.loaded(moduleName(file)) {
		return nil
	}
	// Lines are relative to the release's directory, or absolute.
	if !filepath.IsAbs(file) {
		file = filepath.Join(dir, file)
	} else if rest, ok := strings.CutPrefix(file, "/lib/modules/"); ok {
		file = filepath.Join(m.dir, rest)
	}
	compressed := filepath.Ext(file) != ".ko"
	err := m.insert(file, compressed)
	switch {
	case errors.Is(err, unix.EEXIST):
		return nil
	case compressed && (errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL)):
		return fmt.Errorf("%s: this kernel does not unpack modules (%w): name the module in a file of /etc/modules-load.d on the node", file, err)
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%s: %w: the pod needs the capability SYS_MODULE", file, err)
	case err != nil:
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// insert has the kernel load a module's file, which it may have to unpack.
func insert(file string, compressed bool) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	flags := 0
	if compressed {
		flags = unix.MODULE_INIT_COMPRESSED_FILE
	}
	return unix.FinitModule(int(f.Fd()), "", flags)
}

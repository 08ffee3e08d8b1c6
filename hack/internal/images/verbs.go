package images

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
)

// providers lists, a file each, the provider libraries that libibverbs loads at run time.
const providers = "/etc/libibverbs.d"

// errNoCross is the error of a machine that cannot build on rdma-core for another architecture.
var errNoCross = errors.New("hack/deps verbs-arm64 installs it")

// crossVerbs returns the environment to build on rdma-core for an architecture.
func crossVerbs(arch string) ([]string, error) {
	if arch == runtime.GOARCH {
		return []string{"CGO_ENABLED=1"}, nil
	}
	triplet, ok := map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[arch]
	if !ok {
		return nil, fmt.Errorf("%s: unknown architecture", arch)
	}
	compiler, libraries := triplet+"-gcc", filepath.Join("/usr/lib", triplet)
	if _, err := exec.LookPath(compiler); err != nil {
		return nil, fmt.Errorf("no compiler %s: %w", compiler, errNoCross)
	}
	if _, err := os.Stat(filepath.Join(libraries, "libibverbs.so")); err != nil {
		return nil, fmt.Errorf("no rdma-core for %s: %w", arch, errNoCross)
	}
	return []string{"CGO_ENABLED=1", "CC=" + compiler, "PKG_CONFIG_LIBDIR=" + filepath.Join(libraries, "pkgconfig")}, nil
}

// addVerbs adds the files that dynamically linked programs on rdma-core need: the ELF interpreter,
// the libraries, and libibverbs's providers with theirs.
func addVerbs(t *tree) error {
	if err := stateDir(t); err != nil {
		return err
	}
	gateway, tool := t.entries["usr/bin/gateway"].data, t.entries["usr/bin/sluicectl"].data
	interpreter, err := interpreterOf(gateway)
	if err != nil {
		return err
	}
	real, err := filepath.EvalSymlinks(interpreter)
	if err != nil {
		return err
	}
	// The interpreter lies beside the C library, in Debian's directory of all libraries, which it
	// searches first.
	l := libraries{tree: t, dir: filepath.Dir(real)}
	if err := t.copy(real, interpreter[1:], 0o755); err != nil {
		return err
	}
	if err := t.pack(real); err != nil {
		return err
	}
	if err := errors.Join(l.addNeeded(gateway), l.addNeeded(tool)); err != nil {
		return err
	}
	loaded, err := filepath.Glob(filepath.Join(l.dir, "libibverbs/*.so"))
	if err != nil {
		return err
	}
	configs, err := filepath.Glob(providers + "/*.driver")
	if err != nil {
		return err
	}
	if len(loaded) == 0 || len(configs) == 0 {
		return fmt.Errorf("no provider libraries in %s/libibverbs, or none named in %s: hack/deps verbs installs them", l.dir, providers)
	}
	for _, c := range configs {
		if err := t.copy(c, c[1:], 0o644); err != nil {
			return err
		}
	}
	for _, p := range loaded {
		if err := l.add("libibverbs/" + filepath.Base(p)); err != nil {
			return err
		}
	}
	return nil
}

// interpreterOf returns the path of a dynamically linked program's loader.
func interpreterOf(program []byte) (string, error) {
	f, err := elf.NewFile(strings.NewReader(string(program)))
	if err != nil {
		return "", err
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			b, err := io.ReadAll(p.Open())
			return strings.TrimRight(string(b), "\x00"), err
		}
	}
	return "", errors.New("the program is static: it was not built on rdma-core")
}

// libraries adds shared libraries of dir to a tree, under the same path.
type libraries struct {
	tree *tree
	dir  string
}

// add adds a library and its dependencies.
func (l libraries) add(name string) error {
	to := path.Join(l.dir, name)[1:]
	if l.tree.entries[to] != nil {
		return nil
	}
	data, err := os.ReadFile(filepath.Join(l.dir, name)) // follows the link
	if err != nil {
		return err
	}
	l.tree.file(to, 0o755, data)
	if err := l.tree.pack(filepath.Join(l.dir, name)); err != nil {
		return err
	}
	return l.addNeeded(data)
}

func (l libraries) addNeeded(file []byte) error {
	f, err := elf.NewFile(strings.NewReader(string(file)))
	if err != nil {
		return err
	}
	needed, err := f.ImportedLibraries()
	if err != nil {
		return err
	}
	for _, n := range needed {
		if err := l.add(n); err != nil {
			return err
		}
	}
	return nil
}

package images

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
)

// Directories of an image.
const (
	licenceDir = "usr/share/doc/sluice/licences" // a folder for each module
	statusDir  = "var/lib/dpkg/status.d"         // a file for each Debian package, for scanners
)

var (
	licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|copyright|notice|patents)([-._].*)?$`)
	upperCase   = regexp.MustCompile(`[A-Z]`)
)

// addContents adds the licence texts of the recipe's programs, of the Go modules in them, and of
// the Debian packages whose files the tree has; and a list of all of these.
func addContents(t *tree, r recipe, name, version string) error {
	root, err := checkout()
	if err != nil {
		return err
	}
	out, err := exec.Command("go", "env", "GOROOT", "GOMODCACHE").Output()
	if err != nil {
		return fmt.Errorf("go env: %w", err)
	}
	goroot, cache, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	sources := map[string]string{"go": goroot, "sluice": root} // folder by name
	list := newSBOM(name, version)
	for _, p := range r.programs {
		info, err := buildinfo.Read(bytes.NewReader(t.entries["usr/bin/"+path.Base(p)].data))
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		list.golang("stdlib", strings.TrimPrefix(info.GoVersion, "go"))
		for _, m := range info.Deps {
			sources[m.Path+"@"+m.Version] = moduleDir(cache, m)
			list.golang(m.Path, m.Version)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		if err := addTexts(t, name, sources[name]); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.packages)) {
		if err := addPackage(t, name, list); err != nil {
			return err
		}
	}
	text, err := list.encode()
	if err != nil {
		return err
	}
	t.file(sbomFile, 0o644, text)
	return nil
}

// moduleDir returns a module's folder in the cache, which writes capitals as ! and a small letter.
func moduleDir(cache string, m *debug.Module) string {
	if m.Replace != nil {
		m = m.Replace
	}
	return filepath.Join(cache, upperCase.ReplaceAllStringFunc(m.Path+"@"+m.Version, func(s string) string { return "!" + strings.ToLower(s) }))
}

func addTexts(t *tree, name, dir string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	found := false
	for _, f := range files {
		if f.IsDir() || !licenceFile.MatchString(f.Name()) {
			continue
		}
		found = true
		if err := t.copy(filepath.Join(dir, f.Name()), path.Join(licenceDir, name, f.Name()), 0o644); err != nil {
			return err
		}
	}
	if !found {
		return fmt.Errorf("%s: no licence in %s", name, dir)
	}
	return nil
}

// pack notes the Debian package of a file. dpkg knows files of the merged /usr by either name.
func (t *tree) pack(file string) error {
	short := strings.TrimPrefix(file, "/usr")
	out, err := exec.Command("dpkg-query", "-S", "/usr"+short, short).Output()
	name, _, found := strings.Cut(string(out), ": ")
	if !found { // an error for one of the two names is usual
		return fmt.Errorf("dpkg-query -S %s: %w", file, err)
	}
	t.packages[name] = true
	return nil
}

// addPackage adds the copyright and the description of a Debian package.
func addPackage(t *tree, name string, list *sbom) error {
	const format = `Package: ${Package}\nStatus: install ok installed\nVersion: ${Version}\nArchitecture: ${Architecture}\n` +
		`Maintainer: ${Maintainer}\nSource: ${source:Package} (${source:Version})\n`
	status, err := exec.Command("dpkg-query", "-W", "-f", format, name).Output()
	if err != nil {
		return fmt.Errorf("dpkg-query -W %s: %w", name, err)
	}
	name, _, _ = strings.Cut(name, ":")
	field := func(name string) string {
		_, rest, _ := strings.Cut("\n"+string(status), "\n"+name+": ")
		value, _, _ := strings.Cut(rest, "\n")
		return value
	}
	list.debian(name, field("Version"), field("Architecture"))
	t.file(path.Join(statusDir, name), 0o644, status)
	text := path.Join("usr/share/doc", name, "copyright")
	return t.copy("/"+text, text, 0o644)
}

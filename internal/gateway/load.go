package gateway

import (
	"errors"
	"io/fs"
	"os"
	"slices"

	config "sluice.dev/sluice/api/config/v1alpha1"
)

// load reads a configuration file. Without one it returns given, with its defaults completed.
func load(file string, given *config.GatewayConfig) (*config.File, error) {
	if file != "" {
		return readConfig(file)
	}
	c := *given
	c.Exports = slices.Clone(c.Exports)
	for i := range c.Exports {
		c.Exports[i].Listeners = slices.Clone(c.Exports[i].Listeners)
		c.Exports[i].Complete()
	}
	if ps := c.Validate(); len(ps) > 0 {
		return nil, ps
	}
	return &config.File{Config: c}, nil
}

func readConfig(file string) (*config.File, error) {
	fi, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "read", Path: file, Err: errors.New("not a regular file")}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return config.Parse(b)
}

func namelessProblems(f *config.File) (ps config.Problems) {
	for _, r := range f.Refused {
		if r.Name == "" {
			ps = append(ps, r.Problems...)
		}
	}
	return ps
}

// restartNeeded returns the changed fields that take effect only after a restart.
func restartNeeded(a, b *config.GatewayConfig) (fields []string) {
	if a.StateDir != b.StateDir {
		fields = append(fields, "stateDir")
	}
	if a.HandleKeys != b.HandleKeys {
		fields = append(fields, "handleKeys")
	}
	if a.Log.Format != b.Log.Format {
		fields = append(fields, "log.format")
	}
	if a.Memory != b.Memory {
		fields = append(fields, "memory")
	}
	return fields
}

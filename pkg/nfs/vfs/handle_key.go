package vfs

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// LoadKey reads the key of handles from a file, and creates the file (mode 0600, 32 random bytes)
// if it is missing. The directory must exist. Fewer than MinKey bytes are an error.
func LoadKey(path string) ([]byte, error) {
	key, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeKey(path); err == nil {
			key, err = os.ReadFile(path)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("key of file handles: %w", err)
	}
	if len(key) < MinKey {
		return nil, fmt.Errorf("key of file handles: %s has %d bytes, at least %d are needed", path, len(key), MinKey)
	}
	return key, nil
}

// makeKey writes a new key beside path and links it there: of several processes one wins, and a
// crash leaves no partial key.
func makeKey(path string) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, filepath.Base(path)+".new-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	key := make([]byte, 32)
	rand.Read(key)
	_, err = f.Write(key)
	if err == nil {
		err = f.Sync()
	}
	f.Close()
	if err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

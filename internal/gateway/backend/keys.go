package backend

import (
	"bytes"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"

	config "sluice.dev/sluice/api/config/v1alpha1"
	"sluice.dev/sluice/pkg/nfs/sign"
	"sluice.dev/sluice/pkg/nfs/vfs"
)

// keyFile is the key of file handles in the state directory. Volumes use it too.
const keyFile = "handle.key"

// Keys are the keys of file handles: those of remote backends, and with handleKeys.file those of
// volumes. They are read when the first backend needs them.
type Keys struct {
	log            *slog.Logger
	file, stateDir string

	mu    sync.Mutex
	keys  [][]byte // nil before the first use
	err   string   // of the last Reload
	users map[keyUser]struct{}
}

// keyUser signs handles: a [sign.Signer] or a [server.Server].
type keyUser interface {
	// SetKeys replaces the keys; the first one signs.
	SetKeys(keys [][]byte) error
}

// NewKeys returns the keys of file, or if that is empty a key in stateDir, which is made at the
// first use.
func NewKeys(log *slog.Logger, file, stateDir string) *Keys {
	return &Keys{log: log, file: file, stateDir: stateDir, users: map[keyUser]struct{}{}}
}

// Error returns the error of the last Reload, empty after success.
func (k *Keys) Error() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.err
}

func (k *Keys) load() ([][]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.loadLocked()
}

func (k *Keys) loadLocked() ([][]byte, error) {
	if k.keys != nil {
		return k.keys, nil
	}
	if k.file != "" {
		keys, err := sign.LoadKeys(k.file)
		if err != nil {
			return nil, fmt.Errorf("handleKeys.file: %w", err)
		}
		k.keys = keys
		k.log.Info("file handle keys loaded", "file", k.file, "keys", len(keys))
		return keys, nil
	}
	file := filepath.Join(k.stateDir, keyFile)
	key, err := vfs.LoadKey(file)
	if err != nil {
		return nil, fmt.Errorf("handleKeys.file is not set, and the state directory has no key: %w", err)
	}
	k.keys = [][]byte{key}
	k.log.Info("handleKeys.file is not set; using a key of this gateway alone. Other gateways of the same exports need the same key", "file", file)
	return k.keys, nil
}

// Reload reads the file again. An unusable file changes nothing.
func (k *Keys) Reload() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.file == "" || k.keys == nil {
		return
	}
	keys, err := sign.LoadKeys(k.file)
	if err != nil {
		if text := err.Error(); k.err != text {
			k.err = text
			k.log.Error("file handle keys not reloaded", "file", k.file, "error", err)
		}
		return
	}
	k.err = ""
	if slices.EqualFunc(keys, k.keys, bytes.Equal) {
		return
	}
	k.keys = keys
	k.log.Info("file handle keys replaced", "file", k.file, "keys", len(keys))
	for u := range k.users {
		k.setLocked(u)
	}
}

// signer returns the signer of an export's handles. It follows the keys until release.
func (k *Keys) signer(x *config.Export) (*sign.Signer, error) {
	mode := sign.Auto
	switch x.SignHandles {
	case config.SignRequired:
		mode = sign.Required
	case config.SignOff:
		return sign.New(nil, nil, sign.Off)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	keys, err := k.loadLocked()
	if err != nil {
		return nil, err
	}
	s, err := sign.New(keys, x.Identity(), mode)
	if err != nil {
		return nil, err
	}
	k.users[s] = struct{}{}
	return s, nil
}

// follow lets u, which was made with some keys, follow later ones until release.
func (k *Keys) follow(u keyUser, with [][]byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.users[u] = struct{}{}
	if !slices.EqualFunc(with, k.keys, bytes.Equal) {
		k.setLocked(u)
	}
}

func (k *Keys) setLocked(u keyUser) {
	if err := u.SetKeys(k.keys); err != nil {
		k.log.Error("file handle keys not reloaded", "file", k.file, "error", err)
	}
}

func (k *Keys) release(u keyUser) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.users, u)
}

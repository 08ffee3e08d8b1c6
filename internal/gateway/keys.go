package gateway

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"

	config "sluice.dev/sluice/api/config/v1alpha1"
	"sluice.dev/sluice/pkg/nfs/seal"
	"sluice.dev/sluice/pkg/nfs/vfs"
)

// keyFile is the key of file handles in the state directory, where volumes keep theirs too.
const keyFile = "handle.key"

// handleKeys are the keys that seal handles of remote backends, and of volumes if they have a file. They are read when the first such backend opens; see
// reloadKeys.
func (g *Gateway) handleKeys() ([][]byte, error) {
	g.keysMu.Lock()
	defer g.keysMu.Unlock()
	return g.handleKeysLocked()
}

func (g *Gateway) handleKeysLocked() ([][]byte, error) {
	if g.keys != nil {
		return g.keys, nil
	}
	if file := g.first.HandleKeys.File; file != "" {
		keys, err := seal.LoadKeys(file)
		if err != nil {
			return nil, fmt.Errorf("handleKeys.file: %w", err)
		}
		g.keys = keys
		g.log.Info("keys of file handles are read", "file", file, "keys", len(keys))
		return keys, nil
	}
	file := filepath.Join(g.stateDir(), keyFile)
	key, err := vfs.LoadKey(file)
	if err != nil {
		return nil, fmt.Errorf("handleKeys.file is not set, and the state directory has no key: %w", err)
	}
	g.keys = [][]byte{key}
	g.log.Info("handleKeys.file is not set: file handles are sealed with a key of this gateway's own; others that serve the same exports need the same key", "file", file)
	return g.keys, nil
}

// reloadKeys reads the file of keys again. A file that cannot be used changes nothing.
func (g *Gateway) reloadKeys() {
	file := g.first.HandleKeys.File
	g.keysMu.Lock()
	defer g.keysMu.Unlock()
	if file == "" || g.keys == nil {
		return
	}
	keys, err := seal.LoadKeys(file)
	if err != nil {
		if text := err.Error(); g.keysError != text {
			g.keysError = text
			g.log.Error("the keys of file handles stay as they are", "file", file, "error", err)
		}
		return
	}
	g.keysError = ""
	if slices.EqualFunc(keys, g.keys, bytes.Equal) {
		return
	}
	g.keys = keys
	g.log.Info("keys of file handles are replaced", "file", file, "keys", len(keys))
	for s := range g.sealers {
		if err := s.SetKeys(keys); err != nil {
			g.log.Error("the keys of file handles stay as they are", "file", file, "error", err)
		}
	}
}

// sealer makes what seals an export's handles, until unseal.
func (g *Gateway) sealer(x *config.Export) (*seal.Sealer, error) {
	mode := seal.Auto
	switch x.SealHandles {
	case config.SealRequired:
		mode = seal.Required
	case config.SealOff:
		return seal.New(nil, nil, seal.Off)
	}
	g.keysMu.Lock()
	defer g.keysMu.Unlock()
	keys, err := g.handleKeysLocked()
	if err != nil {
		return nil, err
	}
	s, err := seal.New(keys, x.Identity(), mode)
	if err != nil {
		return nil, err
	}
	if g.sealers == nil {
		g.sealers = map[*seal.Sealer]struct{}{}
	}
	g.sealers[s] = struct{}{}
	return s, nil
}

func (g *Gateway) unseal(s *seal.Sealer) {
	g.keysMu.Lock()
	defer g.keysMu.Unlock()
	delete(g.sealers, s)
}

// keysDiffer tells whether the keys are others by now.
func (g *Gateway) keysDiffer(keys [][]byte) bool {
	g.keysMu.Lock()
	defer g.keysMu.Unlock()
	return !slices.EqualFunc(keys, g.keys, bytes.Equal)
}

package gateway

import (
	"fmt"
	"path/filepath"

	config "sluice.dev/sluice/api/config/v1alpha1"
	"sluice.dev/sluice/pkg/nfs/seal"
	"sluice.dev/sluice/pkg/nfs/vfs"
)

// keyFile is the key of file handles in the state directory, where volumes keep theirs too.
const keyFile = "handle.key"

// handleKeys are the keys that seal handles of remote backends, and of volumes if they have a file. They are read when the first such backend opens, and stay for the process's life.
func (g *Gateway) handleKeys() ([][]byte, error) {
	g.keysMu.Lock()
	defer g.keysMu.Unlock()
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

// sealer makes what seals an export's handles.
func (g *Gateway) sealer(x *config.Export) (*seal.Sealer, error) {
	mode := seal.Auto
	switch x.SealHandles {
	case config.SealRequired:
		mode = seal.Required
	case config.SealOff:
		return seal.New(nil, nil, seal.Off)
	}
	keys, err := g.handleKeys()
	if err != nil {
		return nil, err
	}
	return seal.New(keys, x.Identity(), mode)
}

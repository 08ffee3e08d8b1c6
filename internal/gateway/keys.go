package gateway

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"

	config "sluice.dev/sluice/api/config/v1alpha1"
	"sluice.dev/sluice/pkg/nfs/sign"
	"sluice.dev/sluice/pkg/nfs/vfs"
)

// keyFile is the key of file handles in the state directory, where volumes keep theirs too.
const keyFile = "handle.key"

// handleKeys are the keys that sign handles of remote backends, and of volumes if they have a file. They are read when the first such backend opens; see
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
		keys, err := sign.LoadKeys(file)
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
	g.log.Info("handleKeys.file is not set: file handles are signed with a key of this gateway's own; others that serve the same exports need the same key", "file", file)
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
	keys, err := sign.LoadKeys(file)
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
	for s := range g.signers {
		if err := s.SetKeys(keys); err != nil {
			g.log.Error("the keys of file handles stay as they are", "file", file, "error", err)
		}
	}
}

// signer makes what signs an export's handles, until dropSigner.
func (g *Gateway) signer(x *config.Export) (*sign.Signer, error) {
	mode := sign.Auto
	switch x.SignHandles {
	case config.SignRequired:
		mode = sign.Required
	case config.SignOff:
		return sign.New(nil, nil, sign.Off)
	}
	g.keysMu.Lock()
	defer g.keysMu.Unlock()
	keys, err := g.handleKeysLocked()
	if err != nil {
		return nil, err
	}
	s, err := sign.New(keys, x.Identity(), mode)
	if err != nil {
		return nil, err
	}
	if g.signers == nil {
		g.signers = map[*sign.Signer]struct{}{}
	}
	g.signers[s] = struct{}{}
	return s, nil
}

func (g *Gateway) dropSigner(s *sign.Signer) {
	g.keysMu.Lock()
	defer g.keysMu.Unlock()
	delete(g.signers, s)
}

// keysDiffer tells whether the keys are others by now.
func (g *Gateway) keysDiffer(keys [][]byte) bool {
	g.keysMu.Lock()
	defer g.keysMu.Unlock()
	return !slices.EqualFunc(keys, g.keys, bytes.Equal)
}

package speaker

import (
	"crypto/sha256"
	"encoding/hex"
	"os"

	"sluice.dev/sluice/internal/speaker/api"
)

// configFile is the configuration file as read. config is nil if it is unusable, for the reason in
// err.
type configFile struct {
	config *api.Config
	hash   string // SHA-256, in hexadecimal
	err    error
}

func readConfig(path string) configFile {
	b, err := os.ReadFile(path)
	if err != nil {
		return configFile{err: err}
	}
	c, err := api.Parse(b)
	if err != nil {
		return configFile{err: err}
	}
	sum := sha256.Sum256(b)
	return configFile{config: c, hash: hex.EncodeToString(sum[:])}
}

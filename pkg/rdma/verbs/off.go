//go:build !verbs

package verbs

import (
	"errors"

	"sluice.dev/sluice/pkg/rdma"
)

// New fails: this program was built without rdma-core.
func New(Config) (rdma.Provider, error) {
	return nil, errors.New("verbs: this program was built without rdma-core: build it with cgo and the tag \"verbs\"")
}

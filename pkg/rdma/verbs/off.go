//go:build !verbs

package verbs

import "sluice.dev/sluice/pkg/rdma"

// New fails with [ErrNotBuilt].
func New(Config) (rdma.Provider, error) { return nil, ErrNotBuilt }

// QueryMTU fails with [ErrNotBuilt].
func QueryMTU(string) ([]PortMTU, error) { return nil, ErrNotBuilt }

// Query fails with [ErrNotBuilt].
func Query(string) (Limits, error) { return Limits{}, ErrNotBuilt }

package sluicectl

import (
	"context"
	"fmt"

	"sluice.dev/sluice/internal/doctor"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rdma/iwarp"
	"sluice.dev/sluice/pkg/rdma/verbs"
)

// open returns the provider of RDMA to address.
func (o *options) open(ctx context.Context, address string, soft iwarp.Config) (rdma.Provider, error) {
	switch o.provider {
	case "auto":
		if hard, err := verbs.New(verbs.Config{Device: o.device}); err == nil {
			if o.device != "" {
				return hard, nil
			}
			if d, err := doctor.DeviceTo(ctx, address); err == nil && d != nil {
				return hard, nil
			}
		} else if o.device != "" {
			return nil, err
		}
		return iwarp.New(soft)
	case "verbs":
		return verbs.New(verbs.Config{Device: o.device})
	default:
		return iwarp.New(soft)
	}
}

// checkProvider checks the flags of the provider.
func (o *options) checkProvider() error {
	switch o.provider {
	case "auto", "verbs":
		return nil
	case "iwarp":
		if o.device != "" {
			return fmt.Errorf("--device is %q, but --provider iwarp uses none", o.device)
		}
		return nil
	}
	return fmt.Errorf("--provider is %q, must be auto, iwarp or verbs", o.provider)
}

package rpcbind

import (
	"context"
	"errors"
	"fmt"
)

// Registration has the registrations of this process. Close removes them.
type Registration struct {
	addresses []Address
	mappings  []Mapping
}

// Register registers all mappings with the service of this host, or none. It takes over
// registrations with the same address, as of an earlier run that was killed. If no service runs,
// the error is [ErrAbsent]: clients then need the ports by other means.
func Register(ctx context.Context, addresses []Address, mappings ...Mapping) (*Registration, error) {
	r := &Registration{addresses: addresses}
	c, err := Dial(ctx, addresses)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	for _, m := range mappings {
		if err := register(ctx, c, m); err != nil {
			return nil, errors.Join(err, r.remove(context.WithoutCancel(ctx), c))
		}
		r.mappings = append(r.mappings, m)
	}
	return r, nil
}

func register(ctx context.Context, c *Client, m Mapping) error {
	failed := c.Set(ctx, m)
	if failed == nil {
		return nil
	}
	entries, err := c.Dump(ctx)
	if err != nil {
		return failed
	}
	for _, e := range entries {
		if e.Program == m.Program && e.Version == m.Version && e.NetID == m.NetID {
			return fmt.Errorf("rpcbind: registering %s: user %s has registered it at %s; if nobody serves it there, `rpcinfo -d %d %d` removes it", m, e.Owner, e.Addr, m.Program, m.Version)
		}
	}
	return failed
}

// Close removes the registrations. A service that has gone meanwhile is no error.
func (r *Registration) Close(ctx context.Context) error {
	if r == nil || len(r.mappings) == 0 {
		return nil
	}
	c, err := Dial(ctx, r.addresses)
	if errors.Is(err, ErrAbsent) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	return r.remove(ctx, c)
}

func (r *Registration) remove(ctx context.Context, c *Client) error {
	var errs []error
	for _, m := range r.mappings {
		errs = append(errs, c.Unset(ctx, m))
	}
	r.mappings = nil
	return errors.Join(errs...)
}

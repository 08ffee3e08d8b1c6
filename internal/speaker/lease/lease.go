// Package lease reads, follows and writes Leases of one namespace. It needs the verbs get, watch
// and patch on them by name, and makes none.
package lease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	coordination "k8s.io/api/coordination/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	typed "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"sluice.dev/sluice/internal/speaker/fsm"
)

const (
	callLeast = 3 * time.Second
	// a watch that is silent for so long is restarted: its connection may be dead
	quietMost = 10 * time.Second
	pause     = time.Second
)

// Client is for the Leases of a namespace.
type Client struct {
	leases   typed.LeaseInterface
	duration time.Duration // written to the Lease
}

// New makes a client. duration is that of the Leases it writes, in whole seconds.
func New(c *rest.Config, namespace string, duration time.Duration) (*Client, error) {
	c = rest.CopyConfig(c)
	// One connection that died takes no other request with it.
	c.NextProtos = []string{"http/1.1"}
	c.QPS = -1
	t, err := typed.NewForConfig(c)
	if err != nil {
		return nil, err
	}
	return &Client{leases: t.Leases(namespace), duration: duration}, nil
}

// limit returns the longest wait for an answer. A longer Lease is for slower API servers.
func (c *Client) limit() time.Duration { return max(callLeast, c.duration*3/10) }

// Get reads a Lease.
func (c *Client) Get(ctx context.Context, name string) (fsm.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, c.limit())
	defer cancel()
	l, err := c.leases.Get(ctx, name, meta.GetOptions{})
	if err != nil {
		return fsm.Record{}, err
	}
	return c.record(l), nil
}

// Write carries out w. It fails if the Lease is no longer at w.Version; otherwise a failed write
// may have been done all the same.
func (c *Client) Write(ctx context.Context, w fsm.Write, now time.Time) (fsm.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, c.limit())
	defer cancel()
	b, err := json.Marshal(patch(w, now, c.duration))
	if err != nil {
		return fsm.Record{}, err
	}
	l, err := c.leases.Patch(ctx, w.Lease, types.MergePatchType, b, meta.PatchOptions{FieldManager: "sluice-speaker"})
	if err != nil {
		return fsm.Record{}, err
	}
	return c.record(l), nil
}

// patch is a merge patch (RFC 7386), so that labels and owners stay as the operator made them. The
// version in it makes it conditional.
func patch(w fsm.Write, now time.Time, duration time.Duration) map[string]any {
	spec := map[string]any{
		"holderIdentity":       nil,
		"renewTime":            meta.NewMicroTime(now),
		"leaseDurationSeconds": int32(duration / time.Second),
		"leaseTransitions":     int32(w.Transitions),
	}
	if w.Holder != "" {
		spec["holderIdentity"] = w.Holder
	}
	if w.Acquire {
		spec["acquireTime"] = meta.NewMicroTime(now)
	}
	return map[string]any{"metadata": map[string]any{"resourceVersion": w.Version}, "spec": spec}
}

func (c *Client) record(l *coordination.Lease) fsm.Record {
	r := fsm.Record{Version: l.ResourceVersion, Duration: c.duration, EverHeld: l.Spec.AcquireTime != nil}
	// zero if versions are no numbers here
	r.Order, _ = strconv.ParseUint(l.ResourceVersion, 10, 64)
	if l.Spec.HolderIdentity != nil {
		r.Holder = *l.Spec.HolderIdentity
	}
	if l.Spec.LeaseTransitions != nil {
		r.Transitions = int(*l.Spec.LeaseTransitions)
	}
	if d := l.Spec.LeaseDurationSeconds; d != nil && *d > 0 {
		r.Duration = time.Duration(*d) * time.Second
	}
	return r
}

// Follow reports a Lease and its changes until ctx ends, and trouble: an error, nil when it is
// over.
func (c *Client) Follow(ctx context.Context, name string, seen func(fsm.Record), trouble func(error)) {
	for ctx.Err() == nil {
		err := c.follow(ctx, name, seen, trouble)
		if err != nil && ctx.Err() == nil {
			trouble(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

func (c *Client) follow(ctx context.Context, name string, seen func(fsm.Record), trouble func(error)) error {
	r, err := c.Get(ctx, name)
	if err != nil {
		return err
	}
	trouble(nil)
	seen(r)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	quiet := time.AfterFunc(quietMost, cancel)
	defer quiet.Stop()
	w, err := c.leases.Watch(ctx, meta.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String(), ResourceVersion: r.Version})
	if err != nil {
		if errors.Is(err, context.Canceled) {
			return fmt.Errorf("no answer to a watch for %v", quietMost)
		}
		return err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		quiet.Reset(quietMost)
		l, ok := e.Object.(*coordination.Lease)
		switch {
		case e.Type == watch.Error:
			return nil // such as a version that is too old: it is read anew
		case ok && e.Type != watch.Deleted && l.Name == name:
			seen(c.record(l))
		}
	}
	return nil
}

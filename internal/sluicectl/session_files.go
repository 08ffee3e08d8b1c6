package sluicectl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sluice.dev/sluice/pkg/nfs/client"
	"sluice.dev/sluice/pkg/nfs/nfs3"
)

// walk finds the target's object.
func (s *session) walk(ctx context.Context, path string, follow bool) (client.Object, error) {
	ctx, cancel := s.patience(ctx)
	defer cancel()
	return s.Walk(ctx, s.root, path, follow)
}

// entries reads a directory, sorted by name. p counts the names; it may be nil.
func (s *session) entries(ctx context.Context, dir nfs3.Handle, all bool, p *progress) (entries []client.DirEntry, err error) {
	ctx, answered, cancel := s.patienceEach(ctx)
	defer cancel()
	for e, err := range s.ReadDirPlus(ctx, dir) {
		if err != nil {
			return nil, errors.Join(context.Cause(ctx), err)
		}
		answered()
		p.count(1)
		if all || !strings.HasPrefix(e.Name, ".") {
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, func(a, b client.DirEntry) int { return cmp.Compare(a.Name, b.Name) })
	return entries, nil
}

// complete requests the attributes that the server left out of an entry.
func (s *session) complete(ctx context.Context, dir nfs3.Handle, inDir bool, e *client.DirEntry) error {
	ctx, cancel := s.patience(ctx)
	defer cancel()
	if inDir && e.Handle == nil {
		o, err := s.Lookup(ctx, dir, e.Name)
		if err != nil {
			return fmt.Errorf("%s: %w", printable(e.Name), err)
		}
		e.Handle = o.Handle
		if o.Attr.Present {
			e.Attr = o.Attr
		}
	}
	if !e.Attr.Present {
		attr, err := s.GetAttr(ctx, e.Handle)
		if err != nil {
			return fmt.Errorf("%s: %w", printable(e.Name), err)
		}
		e.Attr = nfs3.PostOpAttr{Present: true, Attr: attr}
	}
	return nil
}

func (s *session) completeAll(ctx context.Context, dir nfs3.Handle, entries []client.DirEntry) error {
	for i := range entries {
		if err := s.complete(ctx, dir, dir != nil, &entries[i]); err != nil {
			return err
		}
	}
	return nil
}

// withAttr gets an object's attributes if they are missing.
func (s *session) withAttr(ctx context.Context, o client.Object) (client.Object, error) {
	if o.Attr.Present {
		return o, nil
	}
	attr, err := s.GetAttr(ctx, o.Handle)
	o.Attr = nfs3.PostOpAttr{Present: true, Attr: attr}
	return o, err
}

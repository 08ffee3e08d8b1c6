package sluicectl

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"

	"sluice.dev/sluice/pkg/nfs/client"
	"sluice.dev/sluice/pkg/nfs/nfs3"
)

// nameBench is the place where operations on names and attributes work: a directory of their own.
type nameBench struct {
	dir   nfs3.Handle
	names nameSource // of CREATE, and of REMOVE
}

// namesOf prepares a call of each such operation.
var namesOf = map[string]func(b *nameBench, ctx context.Context, x *slot) error{
	"SETATTR": (*nameBench).setAttr,
	"RENAME":  (*nameBench).rename,
	"CREATE":  (*nameBench).create,
	"REMOVE":  (*nameBench).remove,

	"CREATE-WRITE": (*nameBench).createWrite,
}

// defaultRemoves is the number of REMOVEs without --count: each needs a file.
const defaultRemoves = 4096

func nameOf(i int64) string { return strconv.FormatInt(nameBase+i, 10) }

var plainFile = nfs3.SetAttrs{SetMode: true, Mode: 0o644}

// benchNames measures in a new directory, which it removes afterwards.
func (s *session) benchNames(ctx context.Context, sessions []*session, o *benchOptions) (err error) {
	parent, err := s.walk(ctx, s.target.path, true)
	if err != nil {
		return err
	}
	short, cancel := s.patience(ctx)
	defer cancel()
	name := fmt.Sprintf("sluicectl-bench.%08x", rand.Uint32())
	dir, err := s.Mkdir(short, parent.Handle, name, nfs3.SetAttrs{SetMode: true, Mode: 0o755})
	if err != nil {
		return err
	}
	b := &nameBench{dir: dir.Handle}
	defer func() {
		short, cancel := s.patience(context.WithoutCancel(ctx))
		defer cancel()
		err = errors.Join(err, s.Rmdir(short, parent.Handle, name))
	}()
	if o.op == "REMOVE" {
		if o.warmup = 0; o.count == 0 {
			o.count = defaultRemoves
		}
		if err := b.run(ctx, sessions, "CREATE", o.count); err != nil {
			return err
		}
		b.names.last.Store(0)
	}
	l, err := newLoad(sessions, o, func(x *slot) error { return namesOf[o.op](b, ctx, x) })
	if err != nil {
		return errors.Join(err, b.empty(ctx, s, o, sessions))
	}
	defer l.close()
	return errors.Join(s.measure(ctx, l, o), b.empty(ctx, s, o, sessions))
}

// run makes n calls on names 1 to n without measuring.
func (b *nameBench) run(ctx context.Context, sessions []*session, op string, n int64) error {
	b.names.last.Store(0)
	l, err := newLoad(sessions, &benchOptions{op: op, depth: 16}, func(x *slot) error { return namesOf[op](b, ctx, x) })
	if err != nil {
		return err
	}
	defer l.close()
	_, err = l.run(ctx, 0, n)
	return err
}

// empty removes the files of a run.
func (b *nameBench) empty(ctx context.Context, s *session, o *benchOptions, sessions []*session) error {
	switch o.op {
	case "REMOVE":
		return nil
	case "CREATE", "CREATE-WRITE":
		if n := b.names.last.Load(); n > 0 {
			return b.run(ctx, sessions, "REMOVE", n)
		}
		return nil
	}
	short, answered, cancel := s.patienceEach(context.WithoutCancel(ctx))
	defer cancel()
	for e, err := range s.ReadDirPlus(short, b.dir) {
		if err == nil && e.Name != "." && e.Name != ".." {
			err = s.Remove(short, b.dir, e.Name)
		}
		if err != nil {
			return err
		}
		answered()
	}
	return nil
}

// file makes the file of a call.
func (b *nameBench) file(ctx context.Context, x *slot) (name string, o client.Object, err error) {
	ctx, cancel := x.s.patience(ctx)
	defer cancel()
	name = nameOf(x.block)
	o, err = x.s.Create(ctx, b.dir, name, nfs3.Guarded, plainFile, nfs3.Verifier{})
	return name, o, err
}

func (b *nameBench) setAttr(ctx context.Context, x *slot) error {
	_, o, err := b.file(ctx, x)
	if err == nil {
		x.op, err = x.s.NewSetAttr(o.Handle, plainFile)
	}
	return err
}

func (b *nameBench) rename(ctx context.Context, x *slot) error {
	name, _, err := b.file(ctx, x)
	if err != nil {
		return err
	}
	other := name + "-"
	if x.op, err = x.s.NewRename(b.dir, name, b.dir, other); err != nil {
		return err
	}
	x.back, err = x.s.NewRename(b.dir, other, b.dir, name)
	return err
}

func (b *nameBench) create(_ context.Context, x *slot) (err error) {
	x.names = &b.names
	x.op, err = x.s.NewCreate(b.dir, nameOf(0), plainFile)
	return err
}

func (b *nameBench) createWrite(_ context.Context, x *slot) error {
	x.names = &b.names
	if err := x.takeBuf(); err != nil {
		return err
	}
	var err error
	x.op, err = x.s.NewCreateWrite(b.dir, nameOf(0), plainFile, x.buf, x.l.o.stable)
	return err
}

func (b *nameBench) remove(_ context.Context, x *slot) (err error) {
	x.names = &b.names
	x.op, err = x.s.NewRemove(b.dir, nameOf(0))
	return err
}

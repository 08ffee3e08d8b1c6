package benchrtt

import (
	"bytes"
	"context"
	"fmt"

	"sluice.dev/sluice/pkg/nfs/client"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/oncrpc"
)

// operation is a row of the table: one RPC.
type operation struct {
	name string
	do   func(context.Context, *caller) error
}

// caller is a client with the handles and buffers of its calls.
type caller struct {
	*client.Client
	rq   oncrpc.Requester
	cred oncrpc.Auth
}

var operations = func() []operation {
	ops := []operation{{"GETATTR", func(ctx context.Context, c *caller) error {
		_, err := c.GetAttr(ctx, file)
		return err
	}}}
	for _, kib := range []int{4, 16, 64, 256, 1024} {
		ops = append(ops, operation{"READ " + size(kib), func(ctx context.Context, c *caller) error { return c.read(ctx, kib<<10) }})
	}
	for _, kib := range []int{4, 16, 64, 256, 1024} {
		ops = append(ops, operation{"WRITE " + size(kib), func(ctx context.Context, c *caller) error { return c.write(ctx, kib<<10) }})
	}
	return append(ops,
		operation{"SETACL 32 KiB", func(ctx context.Context, c *caller) error { return c.setACL(ctx) }},
		operation{"READDIR 64 KiB", func(ctx context.Context, c *caller) error { return c.list(ctx) }},
	)
}()

func size(kib int) string {
	if kib == 1024 {
		return "1 MiB"
	}
	return fmt.Sprintf("%d KiB", kib)
}

func (c *caller) read(ctx context.Context, n int) error {
	b, err := c.Pool().Get(n)
	if err != nil {
		return err
	}
	defer b.Release()
	got, _, err := c.Read(ctx, file, 0, b)
	if err == nil && !bytes.Equal(b.B[:got], content[:n]) {
		err = fmt.Errorf("%d bytes came, not the file's first %d", got, n)
	}
	return err
}

func (c *caller) write(ctx context.Context, n int) error {
	b, err := c.Pool().Get(n)
	if err != nil {
		return err
	}
	defer b.Release()
	copy(b.B, content)
	_, err = c.Write(ctx, file, 0, b, nfs3.FileSync)
	return err
}

func (c *caller) list(ctx context.Context) error {
	n := 0
	for _, err := range c.ReadDirPlus(ctx, file) {
		if err != nil {
			return err
		}
		n++
	}
	if n != entries {
		return fmt.Errorf("%d entries came, the directory has %d", n, entries)
	}
	return nil
}

// aclEntries are in each of the two lists of SETACL: 12 bytes each, 32 KiB together.
const aclEntries = 16 << 10 / 12

// setACL sets an ACL and a default ACL. NFSACL has no binding, so the caller bounds the reply and
// nothing is reduced.
func (c *caller) setACL(ctx context.Context) error {
	r, e, err := oncrpc.NewRequest(c.Pool(), aclProgram, aclVersion, aclSet, c.cred, 34<<10)
	if err != nil {
		return err
	}
	defer r.Free()
	file.Encode(e)
	e.Uint32(0xf) // mask: all of it
	for range 2 {
		e.Uint32(aclEntries)
		e.Uint32(aclEntries)
		for i := range uint32(aclEntries) {
			e.Uint32(2) // USER
			e.Uint32(i)
			e.Uint32(7)
		}
	}
	r.Plan.MaxReply = oncrpc.MinReplyLen + 4 + nfs3.PostOpAttrLen
	if err := oncrpc.Do(ctx, c.rq, r); err != nil {
		return err
	}
	d, err := r.Results()
	if err != nil {
		return err
	}
	if status := nfs3.Status(d.Uint32()); status != nfs3.OK || d.Err() != nil {
		return fmt.Errorf("SETACL: %w, %w", status, d.Err())
	}
	return nil
}

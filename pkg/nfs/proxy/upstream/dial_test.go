package upstream

import (
	"context"
	"testing"

	"sluice.dev/sluice/pkg/oncrpc"
)

// TestDial checks that the gateway's own connections work and end with the backend.
func TestDial(t *testing.T) {
	s := startEcho(t, nil)
	b, pool := newTCPBackend(t, s.addr, Config{})
	ctx := context.Background()
	for _, dial := range []func() (Conn, error){
		func() (Conn, error) { return b.Dial(ctx) },
		func() (Conn, error) { return b.DialTCP(ctx, s.addr) },
	} {
		conn, err := dial()
		if err != nil {
			t.Fatal(err)
		}
		r, _, err := oncrpc.NewRequest(pool, nfsProgram, 3, 0, oncrpc.Auth{}, oncrpc.MinCallLen)
		if err != nil {
			t.Fatal(err)
		}
		if err := oncrpc.Do(ctx, conn, r); err != nil {
			t.Error(err)
		}
		r.Free()
	}
	conn, err := b.Dial(ctx)
	if err != nil {
		t.Fatal(err)
	}
	b.Close()
	conn.Wait()
	if st := b.Status(); st.Ports != 0 {
		t.Errorf("status %+v", st)
	}
	if _, err := b.Dial(ctx); err == nil {
		t.Error("a closed backend was dialled")
	}
}

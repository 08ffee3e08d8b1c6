package upstream

import (
	"net"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"
)

func bindError(errno syscall.Errno) error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("bind", errno)}
}

func connectError(errno syscall.Errno) error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", errno)}
}

// TestPorts checks the choice of source ports, and the reaction to busy ones.
func TestPorts(t *testing.T) {
	answer := func(b *env, lk *Link, n int) {
		t.Helper()
		b.call(lk, 1, 1, nil)
		pass(time.Second)
		b.dialer.conn(t, n).reply(1)
		b.want(ok(1, 1))
	}
	t.Run("others have them", func(t *testing.T) {
		withEnv(t, Config{}, func(b *env) {
			b.dialer.setFail(func(p int) error {
				if p < 670 {
					return connectError(syscall.EADDRNOTAVAIL)
				}
				return nil
			})
			began := time.Now()
			answer(b, b.Open(client(1), nil), 0)
			at, ports, _ := b.dialer.made()
			if ports[5] != 670 || at[5] != began {
				t.Errorf("dialled at %v from %v", at, ports)
			}
			b.dialer.setFail(func(p int) error {
				if p != 0 {
					return bindError(syscall.EADDRINUSE)
				}
				return nil
			})
			answer(b, b.Open(client(2), nil), 1)
			if st := b.Status(); st.OtherPorts != 1 || st.Ports != 1 {
				t.Errorf("status %+v", st)
			}
		})
	})
	t.Run("denied", func(t *testing.T) {
		withEnv(t, Config{}, func(b *env) {
			b.dialer.setFail(func(p int) error {
				if p != 0 && p < 1024 {
					return bindError(syscall.EACCES)
				}
				return nil
			})
			lk := b.Open(client(1), nil)
			answer(b, lk, 0)
			b.dialer.conn(t, 0).end(errBroken)
			answer(b, lk, 1)
			if _, got, _ := b.dialer.made(); !slices.Equal(got, []int{665, 0, 40_000}) {
				t.Errorf("dialled from %v", got)
			}
			answer(b, b.Open(client(2), nil), 2)
			_, ports, _ := b.dialer.made()
			if st := b.Status(); ports[3] != 0 || st.OtherPorts != 0 || st.Ports != 0 {
				t.Errorf("dialled from %v, status %+v", ports, st)
			}
		})
	})
	for _, tt := range []struct {
		name  string
		taken time.Duration
		want  int
	}{{"free again soon", 3 * time.Second, 665}, {"never free again", time.Hour, 666}} {
		t.Run(tt.name, func(t *testing.T) {
			withEnv(t, Config{}, func(b *env) {
				lk := b.Open(client(1), nil)
				answer(b, lk, 0)
				broken := time.Now()
				b.dialer.setFail(func(p int) error {
					if p == 665 && time.Since(broken) < tt.taken {
						return connectError(syscall.EADDRNOTAVAIL)
					}
					return nil
				})
				b.dialer.conn(t, 0).end(errBroken)
				b.call(lk, 1, 1, nil)
				pass(20 * time.Second)
				c := b.dialer.conn(t, 1)
				if c.port != tt.want {
					t.Errorf("port %d, want %d", c.port, tt.want)
				}
				c.reply(1)
				b.want(ok(1, 1))
			})
		})
	}
	t.Run("all in use", func(t *testing.T) {
		withEnv(t, Config{}, func(b *env) {
			for i := range lastPort - firstPort + 2 {
				answer(b, b.Open(client(uint16(i)), nil), i)
			}
			if st := b.Status(); st.OtherPorts != 1 || st.Ports != lastPort-firstPort+1 {
				t.Errorf("status %+v", st)
			}
		})
	})
}

package sluicectl

import (
	"strings"
	"testing"
)

// TestDoctor: the findings depend on the host, but there is output, and the exit code agrees with
// it.
func TestDoctor(t *testing.T) {
	e := newEnv(t)
	for _, c := range []struct {
		args []string
		says []string
	}{
		{[]string{"doctor"}, []string{"memlock", "namespaces"}},
		{[]string{"doctor", "--device", "none9"}, []string{"! there is no RDMA device none9"}},
		{[]string{"doctor", "--client", "ADDR"}, []string{"module     rpcrdma", "route      to 127.0.0.1 by lo", "port       ADDR answers on TCP"}},
	} {
		args := append([]string{}, c.args...)
		for i := range args {
			if args[i] == "ADDR" {
				args[i] = e.rdma
			}
		}
		code, out, errs := e.run("", args...)
		for _, w := range c.says {
			if !strings.Contains(out, w) {
				t.Errorf("%q says nothing of %q:\n%s%s", c.args, w, out, errs)
			}
		}
		if wrong := strings.Contains(out, "\n! ") || strings.HasPrefix(out, "! "); wrong != (code != 0) || wrong == strings.Contains(out, "nothing is in the way") {
			t.Errorf("%q: exit code %d, but it says\n%s%s", c.args, code, out, errs)
		}
	}
}

func TestProviderFlags(t *testing.T) {
	e := newEnv(t)
	for _, c := range []struct{ args, says string }{
		{"--provider fabric ping RDMA/", `--provider is "fabric", must be auto, iwarp or verbs`},
		{"--provider iwarp --device mlx5_4 ping RDMA/", `--device is "mlx5_4", but --provider iwarp uses none`},
		{"--provider verbs ping RDMA/", "verbs: "},
	} {
		if code, _, errs := e.run("", strings.Fields(c.args)...); code == 0 || !strings.Contains(errs, c.says) {
			t.Errorf("%s: exit %d, %s, want %q", c.args, code, errs, c.says)
		}
	}
	if out := e.ok("--provider", "iwarp", "ping", "RDMA/"); !strings.Contains(out, "provider             iwarp (software)") {
		t.Errorf("ping says\n%s", out)
	}
}

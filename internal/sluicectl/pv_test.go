package sluicectl

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestPV compares the output for an export.
func TestPV(t *testing.T) {
	for _, tt := range []struct{ golden, args string }{
		{"data.golden", "testdata/pv/data.yaml"},
		{"data-tcp-pod.golden", "testdata/pv/data.yaml --tcp --pod --namespace other --capacity 20Gi"},
		{"claim-pod.golden", "testdata/pv/claim.json --pod"},
	} {
		var out, errs bytes.Buffer
		args := append([]string{"pv"}, strings.Fields(tt.args)...)
		if code := Run(t.Context(), "test", args, Streams{Out: &out, Err: &errs}); code != 0 || errs.Len() > 0 {
			t.Errorf("%s: exit code %d, %s", tt.args, code, &errs)
			continue
		}
		golden := filepath.Join("testdata", "pv", tt.golden)
		if *update {
			if err := os.WriteFile(golden, out.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), out.String()); d != "" {
			t.Errorf("%s: %s", tt.args, d)
		}
	}
}

// TestPVRefusals reads exports that cannot be mounted, and other objects, from standard input.
func TestPVRefusals(t *testing.T) {
	good, err := os.ReadFile("testdata/pv/data.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ old, new, args, want string }{
		{"", "", "--capacity big", `--capacity "big": want a size such as 500Gi or 1Ti`},
		{"", "", "--namespace Other", `--namespace "Other": want the name of a namespace`},
		{"kind: NFSExport", "kind: List", "", `kind "List" of "sluice.dev/v1alpha1": want one NFSExport of sluice.dev, as kubectl get nfsexport NAME -o yaml prints it`},
		{"kind: NFSExport", "kind: {", "", "not the YAML or JSON of an NFSExport: "},
		{"namespace: team-a", "", "", `metadata.namespace: "": want the namespace of an NFSExport, as kubectl prints it`},
		{"name: data\n", "name: \"a b\"\n", "", `metadata.name: "a b": want the name of an NFSExport, as kubectl prints it`},
		{"  mount: mount -t nfs -o vers=4.2,proto=rdma,port=20049 10.96.0.12:/ /mnt\n", "", "", "NFSExport team-a/data has no status.mount: it has no status: "},
		{
			"  mountTCP: mount -t nfs -o vers=4.2,proto=tcp,port=2049 10.96.0.12:/ /mnt\n  conditions:\n  - {type: Ready, status: \"True\", reason: Ready, message: a new client can mount}",
			"  conditions:\n  - {type: Ready, status: \"False\", reason: Unreachable, message: the backend is away}", "--tcp",
			"NFSExport team-a/data has no status.mountTCP: it is not ready (Unreachable): the backend is away",
		},
		{"10.96.0.12:/ /mnt", "10.96.0.12 /mnt", "", `status.mount: "mount -t nfs -o vers=4.2,proto=rdma,port=20049 10.96.0.12 /mnt": want mount -t nfs -o OPTIONS ADDRESS:/ DIRECTORY`},
		{"", strings.Repeat("#", maxManifest), "", "the file has more than 2097152 bytes: want one NFSExport"},
	} {
		var out, errs bytes.Buffer
		in := strings.NewReader(strings.Replace(string(good), tt.old, tt.new, 1))
		code := Run(t.Context(), "test", append([]string{"pv", "-"}, strings.Fields(tt.args)...), Streams{In: in, Out: &out, Err: &errs})
		if code != 1 || out.Len() > 0 || !strings.HasPrefix(errs.String(), "sluicectl: "+tt.want) {
			t.Errorf("exit code %d, said %q, want %q", code, errs.String(), tt.want)
		}
	}
}

func FuzzPersistentVolume(f *testing.F) {
	for _, name := range []string{"data.yaml", "claim.json"} {
		b, err := os.ReadFile(filepath.Join("testdata", "pv", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, manifest []byte) {
		out, err := persistentVolume(manifest, pvOptions{pod: true, capacity: "1Gi"})
		if err == nil && !bytes.HasPrefix(out, []byte("# By hand: mount -t nfs -o ")) {
			t.Fatalf("%q", out)
		}
	})
}

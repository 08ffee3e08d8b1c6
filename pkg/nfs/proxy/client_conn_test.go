package proxy_test

import (
	"errors"
	"fmt"
	"testing"

	"sluice.dev/sluice/pkg/nfs/access"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/oncrpc"
)

// TestAccess checks that new rules apply to existing connections.
func TestAccess(t *testing.T) {
	_, _, f := start(t, nil)
	for _, network := range []string{"tcp", "rdma"} {
		c := f.dial(t, network, nil)
		root := mnt(t, c, "/")
		set := func(rules ...access.Rule) {
			if err := f.SetAccess(rules); err != nil {
				t.Fatal(err)
			}
		}
		tryOne := func(want string) {
			t.Helper()
			status, _, err := call3(t, c, nfs3.ProcWrite, write3(root, "data"))
			var refused *oncrpc.StatusError
			got := fmt.Sprint(status)
			if errors.As(err, &refused) {
				got = refused.Status.String()
			} else if err != nil {
				t.Fatal(err)
			}
			if got != want {
				t.Errorf("over %s: %s, want %s", network, got, want)
			}
		}
		tryOne(fmt.Sprint(nfs3.OK))
		set()
		tryOne("AUTH_TOOWEAK")
		set(access.Rule{Networks: everyone, ReadOnly: true})
		tryOne(fmt.Sprint(nfs3.ErrROFS))
		set(access.Rule{Networks: everyone})
		tryOne(fmt.Sprint(nfs3.OK))
	}
}

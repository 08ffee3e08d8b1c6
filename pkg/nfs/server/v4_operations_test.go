package server

import (
	"testing"
	"time"

	"sluice.dev/sluice/pkg/nfs/nfs4"
)

func TestOperationBuckets(t *testing.T) {
	for i := range NFS4Buckets {
		bound := NFS4Bound(i)
		if a, b := bucketOf(bound), bucketOf(bound+1); a != i || b != i+1 {
			t.Errorf("%v is in bucket %d, a nanosecond more in %d, must be %d and %d", bound, a, b, i, i+1)
		}
	}
	if a, b := bucketOf(0), bucketOf(time.Hour); a != 0 || b != NFS4Buckets {
		t.Errorf("buckets %d and %d", a, b)
	}
	var v v4Server
	v.count(nfs4.OpRead, nfs4.OK, time.Microsecond)
	v.count(nfs4.OpRead, nfs4.ErrIO, time.Second)
	v.count(4711, nfs4.ErrOpIllegal, time.Minute)
	got := (&Server{v4: &v}).NFS4Operations()
	if len(got) != 2 || got[0].Op != nfs4.OpIllegal || got[0].Failed != 1 || got[0].Buckets[NFS4Buckets] != 1 {
		t.Fatalf("%+v", got)
	}
	r := got[1]
	if r.Op != nfs4.OpRead || r.OK != 1 || r.Failed != 1 || r.Seconds != 1.000001 || r.Buckets[0] != 1 || r.Buckets[8] != 1 {
		t.Errorf("%+v", r)
	}
}

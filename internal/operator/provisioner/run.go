package provisioner

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	registry "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller/metrics"
)

// Delays before another attempt at a claim or a volume.
const (
	retryMin = 2 * time.Second
	retryMax = 5 * time.Minute
)

// figures are the library's metrics, registered once.
var figures = sync.OnceValues(func() (metrics.Metrics, error) {
	m := metrics.New("sluice_provisioner")
	var errs []error
	for _, c := range []prometheus.Collector{
		m.PersistentVolumeClaimProvisionTotal, m.PersistentVolumeClaimProvisionFailedTotal, m.PersistentVolumeClaimProvisionDurationSeconds,
		m.PersistentVolumeDeleteTotal, m.PersistentVolumeDeleteFailedTotal, m.PersistentVolumeDeleteDurationSeconds,
	} {
		errs = append(errs, registry.Registry.Register(c))
	}
	return m, errors.Join(errs...)
})

// Add makes m run the provisioner while it is the leader.
func Add(m manager.Manager) error {
	clients, err := kubernetes.NewForConfigAndClient(m.GetConfig(), m.GetHTTPClient())
	if err != nil {
		return err
	}
	figures, err := figures()
	if err != nil {
		return err
	}
	p := New(m.GetClient())
	return m.Add(manager.RunnableFunc(func(ctx context.Context) error {
		controller.NewProvisionController(ctx, clients, Name, p,
			controller.LeaderElection(false), // the manager's
			controller.AddFinalizer(true),
			// Try for ever.
			controller.FailedProvisionThreshold(0), controller.FailedDeleteThreshold(0),
			controller.RateLimiter(workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryMin, retryMax)),
			controller.MetricsInstance(figures), controller.MetricsPort(0),
		).Run(ctx)
		return nil
	}))
}

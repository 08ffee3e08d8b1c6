// Package uninstall runs before the operator is uninstalled. It refuses while there are NFSExports,
// or deletes them and their gateways while the operator can still clean up.
package uninstall

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/plan"
)

// AnnotationForce with the value "force" on the operator's Deployment sets Options.Force. It works
// after a refusal, when helm accepts no more values.
const AnnotationForce = "sluice.dev/uninstall"

// Options of Run.
type Options struct {
	// Namespaces that the operator watches; empty: all.
	Namespaces []string
	// Force deletes all NFSExports and NFSGateways there.
	Force bool
	// Operator is the operator's Deployment, for AnnotationForce; zero: none.
	Operator client.ObjectKey
	// Release is the name of the Helm release, for errors.
	Release string
	// Poll is the interval of checks for deleted objects.
	Poll time.Duration
	// Timeout of a deletion, beside the gateways' drainTimeout; 0: no limit.
	Timeout time.Duration
}

// AddToScheme adds the kinds that Run reads.
func AddToScheme(s *runtime.Scheme) error {
	if err := v1alpha1.AddToScheme(s); err != nil {
		return err
	}
	return corev1.AddToScheme(s)
}

// Run returns nil if the operator may be uninstalled: there is no NFSExport, or with Force all
// NFSExports, NFSGateways and their objects are gone. Keys of file handles and claims stay. Each
// step may take the longest drainTimeout and o.Timeout. Run reports its steps to out.
func Run(ctx context.Context, c client.Client, o Options, out io.Writer) error {
	exports, err := o.names(ctx, c, &v1alpha1.NFSExportList{})
	if err != nil {
		return err
	}
	if !o.Force && o.Operator != (client.ObjectKey{}) {
		var d metav1.PartialObjectMetadata
		d.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
		if err := c.Get(ctx, o.Operator, &d); client.IgnoreNotFound(err) != nil {
			return err
		}
		o.Force = d.Annotations[AnnotationForce] == "force"
	}
	if len(exports) > 0 && !o.Force {
		return fmt.Errorf("%s served: %s. Delete them, or have all NFSExports and NFSGateways deleted, whereby clients lose their mounts: "+
			"kubectl annotate deployment %s --namespace %s %s=force, then helm uninstall again. "+
			"To leave pods serving without an operator: helm uninstall %s --no-hooks", are(len(exports), "NFSExport"), some(exports), o.Operator.Name, o.Operator.Namespace, AnnotationForce, o.Release)
	}
	if !o.Force {
		return nil
	}
	drain, who, err := o.longestDrain(ctx, c)
	if err != nil {
		return err
	}
	step := func(do func(context.Context) error) error {
		if o.Timeout == 0 {
			return do(ctx)
		}
		ctx, cancel := context.WithTimeoutCause(ctx, o.Timeout+drain, fmt.Errorf("waited %s", o.Timeout+drain))
		defer cancel()
		return do(ctx)
	}
	fmt.Fprintf(out, "deleting %d NFSExports\n", len(exports))
	if drain > time.Minute {
		fmt.Fprintf(out, "NFSGateway %s may drain for %s: if helm gives up before, helm uninstall %s --timeout %s\n", who, drain, o.Release, 2*drain+10*time.Minute)
	}
	if err := o.remove(ctx, c, &v1alpha1.NFSExportList{}); err != nil {
		return err
	}
	if err := step(func(ctx context.Context) error {
		return o.gone(ctx, c, &corev1.ServiceList{}, plan.LabelExport, "Services of exports, which the operator removes if it runs")
	}); err != nil {
		return err
	}
	fmt.Fprintln(out, "deleting NFSGateways")
	if err := step(func(ctx context.Context) error { return o.removeGateways(ctx, c) }); err != nil {
		return err
	}
	return step(func(ctx context.Context) error {
		return o.gone(ctx, c, &corev1.PodList{}, plan.LabelGateway, "gateway pods, which drain")
	})
}

// longestDrain returns the longest drainTimeout, and its NFSGateway.
func (o Options) longestDrain(ctx context.Context, c client.Client) (longest time.Duration, who string, err error) {
	err = o.each(ctx, c, &v1alpha1.NFSGatewayList{}, func(x client.Object) error {
		if d := plan.DrainTimeout(x.(*v1alpha1.NFSGateway)); d > longest {
			longest, who = d, x.GetNamespace()+"/"+x.GetName()
		}
		return nil
	})
	return longest, who, err
}

// removeGateways deletes all NFSGateways. Until the operator has seen that the exports are gone,
// they may be protected.
func (o Options) removeGateways(ctx context.Context, c client.Client) error {
	for {
		err := o.remove(ctx, c, &v1alpha1.NFSGatewayList{})
		if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", err, context.Cause(ctx))
		case <-time.After(o.Poll):
		}
	}
}

// each calls do with each object of the watched namespaces.
func (o Options) each(ctx context.Context, c client.Client, list client.ObjectList, do func(client.Object) error, opts ...client.ListOption) error {
	namespaces := o.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	for _, namespace := range namespaces {
		if err := c.List(ctx, list, append(opts, client.InNamespace(namespace))...); err != nil {
			if meta.IsNoMatchError(err) {
				return nil // without the CRD there are none
			}
			return err
		}
		if err := meta.EachListItem(list, func(item runtime.Object) error { return do(item.(client.Object)) }); err != nil {
			return err
		}
	}
	return nil
}

func (o Options) names(ctx context.Context, c client.Client, list client.ObjectList, opts ...client.ListOption) (names []string, err error) {
	err = o.each(ctx, c, list, func(x client.Object) error {
		names = append(names, x.GetNamespace()+"/"+x.GetName())
		return nil
	}, opts...)
	return names, err
}

func (o Options) remove(ctx context.Context, c client.Client, list client.ObjectList) error {
	return o.each(ctx, c, list, func(x client.Object) error { return client.IgnoreNotFound(c.Delete(ctx, x)) })
}

// gone waits until the operator's objects of a kind with a label are gone.
func (o Options) gone(ctx context.Context, c client.Client, list client.ObjectList, label, what string) error {
	var left []string
	for {
		now, err := o.names(ctx, c, list, client.MatchingLabels{plan.LabelManaged: plan.ManagedBy}, client.HasLabels{label})
		if err == nil && len(now) == 0 {
			return nil
		}
		if err == nil {
			left = now
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s are still there: %s: %w", what, some(left), context.Cause(ctx))
		case <-time.After(o.Poll):
		}
	}
}

func are(n int, what string) string {
	if n == 1 {
		return "one " + what + " is"
	}
	return fmt.Sprintf("%d %ss are", n, what)
}

// some returns the first names of a list.
func some(names []string) string {
	const few = 5
	if len(names) > few {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
	}
	return strings.Join(names, ", ")
}

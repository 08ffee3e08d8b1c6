package report

import (
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/condition"
	"sluice.dev/sluice/internal/operator/plan"
)

// Blocker is an error of a write that people have to resolve: [NameConflict] or [Refused].
type Blocker interface {
	error
	words() words
}

// NameConflict is an object of another owner under the name of one of ours.
type NameConflict struct {
	Kind string
	Name types.NamespacedName
}

func (o *NameConflict) Error() string {
	return fmt.Sprintf("%s %s exists, and the operator did not create it", o.Kind, o.Name)
}

func (o *NameConflict) words() words {
	return words{v1alpha1.ReasonNameTaken, o.Error() + ": delete it, or re-create the NFSGateway under another name"}
}

// Refused is a write that the API server refuses.
type Refused struct {
	Kind string
	Name types.NamespacedName
	Err  error // of the API server
}

func (r *Refused) Error() string { return fmt.Sprintf("%s %s: %v", r.Kind, r.Name, r.Err) }

func (r *Refused) Unwrap() error { return r.Err }

func (r *Refused) words() words {
	return words{v1alpha1.ReasonObjectRefused, fmt.Sprintf("the API server refuses %s %s: %q: change the quota, policy, webhook or field named there", r.Kind, r.Name, condition.Quote(r.Err.Error()))}
}

// serviceRefused returns why an export cannot have its Service, if the export's author has to
// change it.
func serviceRefused(x *plan.Export, err error) words {
	var o *NameConflict
	if errors.As(err, &o) {
		return words{v1alpha1.ReasonAddressTaken, o.Error() + ": delete it, or re-create the export under another name"}
	}
	var refused apierrors.APIStatus
	ip := x.Source.Spec.Address.IP
	if ip == "" || !errors.As(err, &refused) || refused.Status().Details == nil {
		return words{}
	}
	for _, c := range refused.Status().Details.Causes {
		switch {
		case !strings.HasPrefix(c.Field, "spec.clusterIP"):
		case strings.Contains(c.Message, "already allocated"):
			return words{v1alpha1.ReasonAddressTaken, fmt.Sprintf("address.ip: %s belongs to another Service: choose another one, or omit it", ip)}
		// the address family is not configured
		case strings.Contains(c.Message, "range"), strings.Contains(c.Message, "not configured on this cluster"):
			return words{v1alpha1.ReasonAddressOutsidePool, fmt.Sprintf("address.ip: %s is not in the cluster's Service range: %q: choose another one, or omit it", ip, condition.Quote(c.Message))}
		}
	}
	return words{}
}

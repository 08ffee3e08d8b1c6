package controllers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sluice.dev/sluice/internal/operator/report"
)

// What nobody has to change is tried again soon; what somebody has to change is told.
func TestRefused(t *testing.T) {
	services := schema.GroupResource{Resource: "services"}
	answer := func(code int32, reason metav1.StatusReason) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason}}
	}
	for _, c := range []struct {
		err    error
		people bool
	}{
		{apierrors.NewForbidden(services, "data", errors.New("exceeded quota")), true},
		{apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, "data", nil), true},
		{apierrors.NewBadRequest("strict decoding error"), true},
		{apierrors.NewRequestEntityTooLargeError("3 MiB"), true},
		{apierrors.NewInternalError(errors.New(`failed calling webhook "a": connection refused`)), true},
		{answer(http.StatusInternalServerError, metav1.StatusReasonUnknown), false}, // etcdserver: request timed out
		{apierrors.NewServerTimeout(services, "create", 2), false},                  // etcd is away
		{apierrors.NewTimeoutError("too slow", 1), false},
		{apierrors.NewTooManyRequests("too many", 1), false},
		{apierrors.NewConflict(services, "data", errors.New("changed")), false},
		{context.DeadlineExceeded, false},
	} {
		err := refused(&corev1.Service{TypeMeta: metav1.TypeMeta{Kind: "Service"}}, fmt.Errorf("wrapped: %w", c.err))
		var is *report.Refused
		if errors.As(err, &is) != c.people || !errors.Is(err, c.err) {
			t.Errorf("%v is for people to change: %v, want %v", c.err, is != nil, c.people)
		}
	}
	if err := refused(&corev1.Service{}, nil); err != nil {
		t.Errorf("nothing is %v", err)
	}
}

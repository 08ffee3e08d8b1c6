package v1alpha1

import (
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Size is a number of bytes, such as 4Ki, 256Mi or 2Gi.
//
// +kubebuilder:validation:MaxLength=16
// +kubebuilder:validation:Pattern=`^[1-9][0-9]{0,12}(Ki|Mi|Gi|Ti)?$`
type Size string

// Bytes returns the number of bytes; 0 if s is none.
func (s Size) Bytes() int64 {
	q, err := resource.ParseQuantity(string(s))
	if err != nil {
		return 0
	}
	return q.Value()
}

// Rate is a number of bytes per second, such as 64Ki or 1Mi, or 0.
//
// +kubebuilder:validation:MaxLength=16
// +kubebuilder:validation:Pattern=`^(0|[1-9][0-9]{0,12}(Ki|Mi|Gi|Ti)?)$`
type Rate string

// Bytes returns the number of bytes per second; 0 if r is none.
func (r Rate) Bytes() int64 { return Size(r).Bytes() }

// Duration is a length of time, such as 500ms, 20s or 1h30m.
//
// +kubebuilder:validation:MaxLength=16
// +kubebuilder:validation:Pattern=`^([0-9]{1,6}(ms|s|m|h))+$`
type Duration string

// ShortDuration is a length of time down to microseconds, such as 16us, 67ms or 1s.
//
// +kubebuilder:validation:MaxLength=16
// +kubebuilder:validation:Pattern=`^([0-9]{1,6}(us|ms|s))+$`
type ShortDuration string

// Duration returns the length of time; 0 if d is none.
func (d ShortDuration) Duration() time.Duration { return Duration(d).Duration() }

// Duration returns the length of time; 0 if d is none.
func (d Duration) Duration() time.Duration {
	v, err := time.ParseDuration(string(d))
	if err != nil {
		return 0
	}
	return v
}

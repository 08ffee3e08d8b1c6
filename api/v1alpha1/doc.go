// Package v1alpha1 is the API that Sluice adds to a cluster. An [NFSGateway] is a set of gateway
// pods; an [NFSExport] is a tree of files that clients mount through one. The operator
// (internal/operator) makes pods, Services and the gateway's configuration file from them. Fields
// have the names of that file (api/config/v1alpha1).
//
// The schema and its CEL rules refuse errors in one resource at apply. Errors that depend on the
// cluster become conditions (conditions.go).
// +kubebuilder:object:generate=true
// +groupName=sluice.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of this package.
var GroupVersion = schema.GroupVersion{Group: "sluice.dev", Version: "v1alpha1"}

// AddToScheme adds the kinds of this package to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &NFSGateway{}, &NFSGatewayList{}, &NFSExport{}, &NFSExportList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

package objects

import (
	"encoding/base64"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/plan"
	"sluice.dev/sluice/pkg/nfs/sign"
)

// NewKeys returns the entry "keys" of a Secret: one random key, in base64.
func NewKeys(rand io.Reader) ([]byte, error) {
	key := make([]byte, sign.MinKey)
	if _, err := io.ReadFull(rand, key); err != nil {
		return nil, fmt.Errorf("a key of file handles: %w", err)
	}
	return append(base64.StdEncoding.AppendEncode(nil, key), '\n'), nil
}

// KeysSecret returns the Secret of handle keys of a gateway that names none. It never changes,
// because clients hold handles signed with it. It has no owner, so that it outlives the gateway.
func KeysSecret(g *v1alpha1.NFSGateway, keys []byte) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta:   typeMeta("v1", "Secret"),
		ObjectMeta: metav1.ObjectMeta{Name: plan.KeysName(g), Namespace: g.Namespace, Labels: labels(g)},
		Type:       corev1.SecretTypeOpaque,
		Data:       map[string][]byte{plan.KeysEntry: keys},
	}
}

//go:build operator

// Package apiserver runs a real etcd and kube-apiserver for tests.
package apiserver

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/go-logr/logr"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// patience is the limit for waits that usually take seconds. envtest's own is 20 s, and 10 s for
// CRDs.
const patience = 2 * time.Minute

// Start starts both without any CRD, on free ports of loopback. The programs are those of
// $KUBEBUILDER_ASSETS, or else built by hack/k8s/prepare. flags are further flags of
// kube-apiserver, "name=value". The caller calls stop, which ends both.
func Start(flags ...string) (cfg *rest.Config, stop func() error, err error) {
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	if assets == "" {
		if assets, err = Prepare("kubernetes", "etcd"); err != nil {
			return nil, nil, err
		}
	}
	log.SetLogger(logr.Discard()) // controller-runtime complains without one
	env := &envtest.Environment{BinaryAssetsDirectory: assets, ControlPlaneStartTimeout: patience, ControlPlaneStopTimeout: patience}
	for _, f := range flags {
		name, value, _ := strings.Cut(f, "=")
		env.ControlPlane.GetAPIServer().Configure().Set(name, value)
	}
	if cfg, err = env.Start(); err != nil {
		return nil, nil, fmt.Errorf("kube-apiserver: %w", err)
	}
	cfg.QPS = -1 // no limit
	return cfg, env.Stop, nil
}

// InstallCRDs creates or updates the CRDs of the options, and waits until the server has their
// kinds.
func InstallCRDs(cfg *rest.Config, options envtest.CRDInstallOptions) ([]*apiextensions.CustomResourceDefinition, error) {
	options.ErrorIfPathMissing, options.MaxTime = true, patience
	return envtest.InstallCRDs(cfg, options)
}

// Prepare has hack/k8s/prepare build parts of Kubernetes, and returns the directory of the
// programs.
func Prepare(parts ...string) (string, error) {
	cmd := exec.Command(Path("hack/k8s/prepare"), parts...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("hack/k8s/prepare %s: %w", strings.Join(parts, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

// Path returns the path of a file of the repository.
func Path(name string) string {
	_, here, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(here), "../..", name)
}

// Kubeconfig returns a kubeconfig file for kubectl and helm, as cfg's user or, if account is not
// empty, as system:serviceaccount:NAMESPACE:NAME.
func Kubeconfig(cfg *rest.Config, account string) ([]byte, error) {
	const name = "test"
	c := api.NewConfig()
	c.Clusters[name] = &api.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData}
	c.AuthInfos[name] = &api.AuthInfo{ClientCertificateData: cfg.CertData, ClientKeyData: cfg.KeyData, Impersonate: account}
	c.Contexts[name] = &api.Context{Cluster: name, AuthInfo: name}
	c.CurrentContext = name
	return clientcmd.Write(*c)
}

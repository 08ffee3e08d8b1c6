package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// api accesses the API server.
type api struct {
	url    string
	client *http.Client
}

func newAPI(url, pki string) (*api, error) {
	ca, err := os.ReadFile(filepath.Join(pki, "ca.crt"))
	if err != nil {
		return nil, err
	}
	own, err := tls.LoadX509KeyPair(filepath.Join(pki, "networks.crt"), filepath.Join(pki, "networks.key"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("no certificate in %s/ca.crt", pki)
	}
	return &api{url, &http.Client{
		Timeout:   10 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{own}}},
	}}, nil
}

// call makes a request and decodes the answer.
func (a *api) call(method, path string, body []byte, answer any) error {
	req, err := http.NewRequest(method, a.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/merge-patch+json")
	resp, err := a.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, b)
	}
	return json.Unmarshal(b, answer)
}

func podPath(namespace, name string) string {
	return "/api/v1/namespaces/" + namespace + "/pods/" + name
}

// annotation returns the annotation of a pod's networks.
func (a *api) annotation(namespace, name string) (string, error) {
	var pod struct {
		Metadata struct{ Annotations map[string]string }
	}
	err := a.call(http.MethodGet, podPath(namespace, name), nil, &pod)
	return pod.Metadata.Annotations[networksKey], err
}

// definition returns the configuration in a NetworkAttachmentDefinition.
func (a *api) definition(namespace, name string) (string, error) {
	var d struct{ Spec struct{ Config string } }
	err := a.call(http.MethodGet, "/apis/k8s.cni.cncf.io/v1/namespaces/"+namespace+"/network-attachment-definitions/"+name, nil, &d)
	return d.Spec.Config, err
}

func (a *api) setStatus(namespace, name string, status []networkStatus) error {
	s, err1 := json.MarshalIndent(status, "", "    ")
	body, err2 := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{statusKey: string(s)}}})
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	var pod struct{}
	return a.call(http.MethodPatch, podPath(namespace, name), body, &pod)
}

// Networks is a CNI plugin for the test cluster, in place of Multus. It runs another plugin for the
// pod's interface in the cluster's network. Then, for each network in the pod's annotation
// k8s.v1.cni.cncf.io/networks, it runs the plugin of the NetworkAttachmentDefinition. It writes
// k8s.v1.cni.cncf.io/network-status to the pod.
//
// Of the standard of the Network Plumbing Working Group it implements the parts that Sluice uses:
// name, namespace and interface of a network.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// config is the plugin's network configuration.
type config struct {
	CNIVersion string `json:"cniVersion"`
	API        string `json:"api"` // the API server's URL
	PKI        string `json:"pki"` // folder of ca.crt, networks.crt, networks.key
	// host-local's folder for the addresses of the other networks, for all nodes
	IPAMDir  string          `json:"ipamDir"`
	Delegate json.RawMessage `json:"delegate"` // the plugin for the cluster's network
}

// stateDir has a file for each sandbox with its interfaces. When the sandbox is deleted, pod and
// definitions may be gone.
const stateDir = "/var/lib/cni/networks-of"

func main() {
	result, err := run(os.Getenv("CNI_COMMAND"))
	if err != nil {
		result, _ = json.Marshal(map[string]any{"cniVersion": "0.4.0", "code": 999, "msg": "networks: " + err.Error()})
	}
	fmt.Println(string(result))
	if err != nil {
		os.Exit(1)
	}
}

func run(command string) ([]byte, error) {
	if command == "VERSION" {
		return []byte(`{"cniVersion": "1.0.0", "supportedVersions": ["0.3.1", "0.4.0", "1.0.0"]}`), nil
	}
	in, err := io.ReadAll(os.Stdin)
	if err != nil {
		return nil, err
	}
	var c config
	if err := json.Unmarshal(in, &c); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	switch command {
	case "ADD":
		return c.add()
	case "DEL":
		return nil, c.del()
	}
	return nil, fmt.Errorf("CNI_COMMAND %q: want ADD, DEL or VERSION", command)
}

func (c *config) add() ([]byte, error) {
	namespace, pod := podName(os.Getenv("CNI_ARGS"))
	if pod == "" {
		return nil, fmt.Errorf("CNI_ARGS %q names no pod", os.Getenv("CNI_ARGS"))
	}
	first := os.Getenv("CNI_IFNAME")
	result, err := plugin("ADD", first, c.Delegate)
	if err != nil {
		return nil, err
	}
	status := []networkStatus{{Name: "pods", Default: true}}
	if err := status[0].fill(result, first); err != nil {
		return nil, err
	}
	api, err := newAPI(c.API, c.PKI)
	if err != nil {
		return nil, err
	}
	annotation, err := api.annotation(namespace, pod)
	if err != nil {
		return nil, err
	}
	selected, err := parseNetworks(annotation, namespace)
	if err != nil {
		return nil, fmt.Errorf("annotation %s of pod %s/%s: %w", networksKey, namespace, pod, err)
	}
	var made []attachment
	for _, s := range selected {
		definition, err := api.definition(s.Namespace, s.Name)
		if err != nil {
			return nil, err
		}
		conf, err := pluginConfig(definition, s, c.IPAMDir)
		if err != nil {
			return nil, fmt.Errorf("NetworkAttachmentDefinition %s/%s: %w", s.Namespace, s.Name, err)
		}
		made = append(made, attachment{s.Interface, conf})
		if err := remember(made); err != nil { // recorded first: DEL also follows a failure
			return nil, err
		}
		result, err := plugin("ADD", s.Interface, conf)
		if err != nil {
			return nil, fmt.Errorf("network %s/%s: %w", s.Namespace, s.Name, err)
		}
		one := networkStatus{Name: s.Namespace + "/" + s.Name}
		if err := one.fill(result, s.Interface); err != nil {
			return nil, err
		}
		status = append(status, one)
	}
	return result, api.setStatus(namespace, pod, status)
}

func (c *config) del() error {
	var errs []error
	made, err := remembered()
	errs = append(errs, err)
	for _, a := range made {
		_, err := plugin("DEL", a.Interface, a.Config)
		errs = append(errs, err)
	}
	_, err = plugin("DEL", os.Getenv("CNI_IFNAME"), c.Delegate)
	if err := errors.Join(append(errs, err)...); err != nil {
		return err
	}
	return os.RemoveAll(stateFile())
}

// An attachment is an interface made by a plugin.
type attachment struct {
	Interface string          `json:"interface"`
	Config    json.RawMessage `json:"config"`
}

func stateFile() string { return filepath.Join(stateDir, filepath.Base(os.Getenv("CNI_CONTAINERID"))) }

func remember(made []attachment) error {
	b, err := json.Marshal(made)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(stateDir, 0o700); err != nil {
		return err
	}
	return os.WriteFile(stateFile(), b, 0o600)
}

func remembered() (made []attachment, err error) {
	b, err := os.ReadFile(stateFile())
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return made, json.Unmarshal(b, &made)
}

// podName returns the pod in the container runtime's arguments: K8S_POD_NAMESPACE=…;K8S_POD_NAME=….
func podName(args string) (namespace, name string) {
	for pair := range strings.SplitSeq(args, ";") {
		switch key, value, _ := strings.Cut(pair, "="); key {
		case "K8S_POD_NAMESPACE":
			namespace = value
		case "K8S_POD_NAME":
			name = value
		}
	}
	return namespace, name
}

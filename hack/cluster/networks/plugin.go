package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	networksKey = "k8s.v1.cni.cncf.io/networks"
	statusKey   = "k8s.v1.cni.cncf.io/network-status"
)

// A selection is a network requested by a pod.
type selection struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	Interface string `json:"interface"`
}

// parseNetworks reads the annotation: a JSON list, or names separated by commas,
// [NAMESPACE/]NAME[@INTERFACE]. The defaults are the pod's namespace, and net1, net2 and so on for
// the interfaces.
func parseNetworks(annotation, namespace string) ([]selection, error) {
	var all []selection
	switch annotation = strings.TrimSpace(annotation); {
	case annotation == "":
		return nil, nil
	case strings.HasPrefix(annotation, "["):
		d := json.NewDecoder(strings.NewReader(annotation))
		d.DisallowUnknownFields()
		if err := d.Decode(&all); err != nil {
			return nil, err
		}
		if _, err := d.Token(); !errors.Is(err, io.EOF) {
			return nil, errors.New("there is something after the list")
		}
	default:
		for item := range strings.SplitSeq(annotation, ",") {
			var s selection
			s.Name, s.Interface, _ = strings.Cut(strings.TrimSpace(item), "@")
			if ns, name, ok := strings.Cut(s.Name, "/"); ok {
				s.Namespace, s.Name = ns, name
			}
			all = append(all, s)
		}
	}
	for i := range all {
		s := &all[i]
		if s.Namespace == "" {
			s.Namespace = namespace
		}
		if s.Interface == "" {
			s.Interface = fmt.Sprintf("net%d", i+1)
		}
		if s.Name == "" {
			return nil, fmt.Errorf("network %d has no name", i+1)
		}
	}
	return all, nil
}

// pluginConfig returns a plugin's configuration for a definition. host-local counts its addresses
// for all nodes together.
func pluginConfig(definition string, s selection, ipamDir string) (json.RawMessage, error) {
	var conf map[string]any
	if err := json.Unmarshal([]byte(definition), &conf); err != nil {
		return nil, fmt.Errorf("spec.config: %w", err)
	}
	if _, ok := conf["plugins"]; ok {
		return nil, errors.New("spec.config is a list of plugins: want a single one")
	}
	if conf["name"] == nil {
		conf["name"] = s.Namespace + "." + s.Name
	}
	if conf["cniVersion"] == nil {
		conf["cniVersion"] = "0.4.0"
	}
	if ipam, ok := conf["ipam"].(map[string]any); ok && ipam["type"] == "host-local" && ipam["dataDir"] == nil {
		ipam["dataDir"] = ipamDir
	}
	return json.Marshal(conf)
}

// plugin runs the plugin of a configuration's type for an interface, and returns its output.
func plugin(command, ifname string, conf json.RawMessage) ([]byte, error) {
	var c struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(conf, &c); err != nil {
		return nil, err
	}
	path := ""
	for _, dir := range filepath.SplitList(os.Getenv("CNI_PATH")) {
		if _, err := os.Stat(filepath.Join(dir, filepath.Base(c.Type))); err == nil {
			path = filepath.Join(dir, filepath.Base(c.Type))
			break
		}
	}
	if path == "" {
		return nil, fmt.Errorf("no CNI plugin of type %q in %s", c.Type, os.Getenv("CNI_PATH"))
	}
	cmd := exec.Command(path)
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+command, "CNI_IFNAME="+ifname)
	cmd.Stdin = bytes.NewReader(conf)
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("CNI plugin %s: %w: %s", c.Type, err, bytes.TrimSpace(out))
	}
	return out, nil
}

// networkStatus is one entry of the pod's network status.
type networkStatus struct {
	Name      string   `json:"name"`
	Interface string   `json:"interface,omitempty"`
	IPs       []string `json:"ips,omitempty"`
	MAC       string   `json:"mac,omitempty"`
	Default   bool     `json:"default,omitempty"`
	DNS       struct{} `json:"dns"`
}

// fill copies the plugin's result for the pod's interface.
func (n *networkStatus) fill(result []byte, ifname string) error {
	var r struct {
		Interfaces []struct{ Name, MAC, Sandbox string }
		IPs        []struct {
			Address   netip.Prefix
			Interface *int
		}
	}
	if err := json.Unmarshal(result, &r); err != nil {
		return fmt.Errorf("result of the plugin for %s: %w", ifname, err)
	}
	n.Interface = ifname
	for i, itf := range r.Interfaces {
		if itf.Name != ifname || itf.Sandbox == "" {
			continue
		}
		n.MAC = itf.MAC
		for _, ip := range r.IPs {
			if ip.Interface != nil && *ip.Interface == i {
				n.IPs = append(n.IPs, ip.Address.Addr().String())
			}
		}
	}
	return nil
}

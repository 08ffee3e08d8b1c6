// Package v1alpha1 defines the gateway's configuration file: types, defaults, rules, and [Parse],
// which reports path, line, value and expected form of each wrong field.
//
// The field names match the Kubernetes resources, so the operator mostly copies them:
//
//	apiVersion: config.sluice.dev/v1alpha1
//	kind: GatewayConfig
//	admin: {address: "127.0.0.1:9180"}
//	exports:
//	- name: data
//	  listeners:
//	  - {network: rdma, provider: iwarp, address: "127.0.0.1:20049"}
//	  - {network: tcp, address: "127.0.0.1:2049"}
//	  backend: {volume: {path: /srv/data}}
//	  access: [{from: {networks: ["127.0.0.0/8"]}, mode: ReadWrite, squash: None}]
//
// All functions are pure: they use no file, socket or clock.
package v1alpha1

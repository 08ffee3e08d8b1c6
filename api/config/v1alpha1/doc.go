// Package v1alpha1 is the gateway's configuration file: its types, their defaults, their rules, and [Parse], which reads
// one and says of each wrong field its path, its line, its value and what would be right.
//
// The words are those of the Kubernetes resources, so that an operator only has to copy them:
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
// All functions are pure: they touch no file, no socket and no clock.
package v1alpha1

# Sluice. `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

FUZZTIME ?= 5s
COUNT ?= 10
export CGO_ENABLED ?= 0
export NOT_RUN := $(CURDIR)/bin/not-run
race := CGO_ENABLED=1 go test -race -timeout 20m
version := $(shell git describe --always --dirty 2>/dev/null || echo unknown)
install := go build -trimpath -ldflags "-X main.version=$(version)" -o bin/
lint := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

generate: ## deep copies, CRDs, roles, diagrams
	go run ./hack/generate
	go run ./hack/diagrams

build: ## bin/gateway, bin/operator and bin/sluicectl
	@hack/deps build
	$(install) ./cmd/...

image: ## container images in bin/images; REPOSITORY=registry.example/sluice pushes them
	@hack/deps verbs
	go run ./hack/image -version $(version) $(if $(REPOSITORY),-push $(REPOSITORY)) gateway gateway-verbs operator

release: ## a release in bin/release; REGISTRY=registry.example/sluice pushes it
	@hack/deps verbs-arm64
	go run ./hack/release $(if $(REGISTRY),-push $(REGISTRY)) $(if $(URL),-url $(URL))

man: ## bin/share: man pages, and shell completion of sluicectl
	go run ./hack/man -version $(version) -o bin/share

demo: ## export a directory, compare cp, dd, RPC-over-RDMA and TCP, show the traffic
	@hack/deps build
	$(install) ./cmd/gateway ./cmd/sluicectl
	@go run ./hack/demo -bin bin

test: ## all tests, with the Linux client, RDMA devices and a Kubernetes cluster
	@echo "All tests: 45 minutes on two cores, an hour and a half when nothing is cached yet."
	@hack/deps test
	$(MAKE) --no-print-directory test-quick test-page fuzz test-kernel test-verbs test-operator test-cluster

test-quick: build ## the inner loop: unit tests with the race detector; allocation budgets
	@hack/deps test verbs
	@rm -f $(NOT_RUN)
	$(race) ./...
	go test ./pkg/...
	@[ ! -e $(NOT_RUN) ] || { echo "Tests that this machine could not run:"; sort -u $(NOT_RUN); }

test-page: ## the gateway's pages in Chromium
	@hack/deps page
	go test -tags page -count=1 ./hack/screenshots

screenshots: ## docs/screenshots: the gateway's pages, sluicectl top; 10 minutes of traffic
	@hack/deps page
	go run ./hack/screenshots -version "$$(cat VERSION)"

fuzz: ## each fuzz target for FUZZTIME (5s)
	@hack/fuzz $(FUZZTIME)

test-kernel: build ## the Linux NFS/RDMA client and server, and NFS-Ganesha; FULL=1: also Linux 6.12
	@hack/deps kernel
	@hack/vm/prepare
	@$(if $(FULL),hack/vm/prepare -k 6.12)
	go test -tags kernel -timeout $(if $(FULL),180m,60m) -count=1 -v $(if $(FULL),./test/kernel -args -full,-skip '^(TestMountOptions|TestClientHost|TestCrash)$$' ./test/kernel)
	go test -tags kernel -timeout 15m -count=1 -v ./test/hostile ./test/exhaustion

test-operator: ## API and operator against a real kube-apiserver, with gateways as pods; a release
	@hack/deps test verbs
	KUBEBUILDER_ASSETS="$$(hack/k8s/prepare kubernetes etcd)" go test -tags operator -timeout 30m -count=1 ./test/api ./test/chart ./test/operator ./test/release ./internal/operator/objects ./internal/speaker/lease

test-verbs: ## adapters: software RoCE and iWARP devices in the guest; FULL=1
	@hack/deps kernel verbs
	@hack/vm/prepare
	@$(if $(FULL),hack/vm/prepare -k 6.12)
	CGO_ENABLED=1 go test -tags verbs -count=1 ./pkg/rdma/verbs
	go test -tags 'kernel verbs' -timeout 60m -count=1 -v ./test/verbs $(if $(FULL),-args -full)

test-cluster: ## a stock Linux client and Kubernetes with two nodes on this machine
	@hack/deps vm bench cluster verbs
	@hack/vm/prepare
	@hack/k8s/prepare
	go test -tags cluster -timeout 60m -count=1 -v -skip '^TestSRIOV$$' ./test/cluster

test-sriov: ## Kubernetes with virtual functions of an emulated SR-IOV adapter; not in make test
	@hack/deps sriov bench verbs
	@hack/vm/prepare -k 6.12
	@hack/sriov/prepare
	@hack/k8s/prepare kubernetes etcd helm sriovdp multus
	go test -tags 'kernel verbs' -timeout 15m -count=1 -v -run '^TestReused$$' ./test/verbs -args -full
	go test -tags cluster -timeout 40m -count=1 -v -run '^TestSRIOV$$' ./test/cluster

test-full: ## make test, each fuzz target for a minute, each NFS version
	$(MAKE) --no-print-directory test FUZZTIME=60s FULL=1

bench: build ## gateway, NFS-Ganesha and bare loops side by side; writes bench.json, bench.svg
	@hack/deps bench
	go run ./hack/bench -bin bin -o bench.json
	go run ./hack/bench -o bench.json -draw bench.svg

bench-go: ## Go benchmarks, COUNT (10) times; writes bench-go.txt for benchstat
	go test -run '^$$' -bench . -benchmem -count $(COUNT) ./pkg/... | tee bench-go.txt

pgo: build ## cmd/gateway/default.pgo, the profile that the gateway is optimized by
	hack/pgo

bench-rtt: ## RPC-over-RDMA 1 and 2 by round-trip time; writes bench-rtt.json
	@cd hack/benchrtt && go test -count=1 -run '^TestBenchRTT$$' -args -o $(CURDIR)/bench-rtt.json

lint: ## static checks of the code and the prose; known vulnerabilities
	go vet ./...
	CGO_ENABLED=0 go run $(lint) run ./...
	go run ./hack/prose
	hack/vulncheck

clean: ## remove build and benchmark output
	rm -rf bin bench.json bench.svg bench-go.txt bench-rtt.json

.PHONY: help generate build image release man demo screenshots test test-quick test-page fuzz test-kernel test-operator test-verbs test-cluster test-sriov test-full bench bench-go bench-rtt pgo lint clean

# Sluice. `make help` lists what there is.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

FUZZTIME ?= 5s
export CGO_ENABLED ?= 0
export NOT_RUN := $(CURDIR)/bin/not-run
race := CGO_ENABLED=1 go test -race -timeout 20m
version := $(shell git describe --always --dirty 2>/dev/null || echo unknown)
install := go build -trimpath -ldflags "-X main.version=$(version)" -o bin/
lint := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

generate: ## what is made of the API's types and the controllers' markers: deep copies, CRDs, roles, the chart's copies of them
	go run ./hack/generate

build: ## bin/gateway, bin/operator and bin/sluicectl
	@hack/deps build
	$(install) ./cmd/...

image: ## container images, as archives in bin/images: gateway, gateway-verbs, operator; REPOSITORY=registry.example/sluice pushes them, and helm's command is printed
	@hack/deps verbs
	go run ./hack/image -version $(version) $(if $(REPOSITORY),-push $(REPOSITORY)) gateway gateway-verbs operator

demo: ## export a directory on loopback, move 256 MiB each way over RPC-over-RDMA, show what crossed the wire
	@hack/deps build
	$(install) ./cmd/gateway ./cmd/sluicectl
	@go run ./hack/demo -bin bin

test: ## every test, the Linux kernel's client and server, RDMA devices and a Kubernetes cluster included
	@echo "All tests: 45 minutes on two cores, an hour and a half when nothing is cached yet."
	@hack/deps test
	$(MAKE) --no-print-directory test-quick fuzz test-kernel test-verbs test-operator test-cluster

test-quick: build ## the inner loop: unit tests with the race detector, and the libraries' without it, which holds their budgets of allocations
	@hack/deps test verbs
	@rm -f $(NOT_RUN)
	$(race) ./...
	go test ./pkg/...
	@[ ! -e $(NOT_RUN) ] || { echo "Tests that this machine could not run:"; sort -u $(NOT_RUN); }

fuzz: ## each fuzz target for FUZZTIME (5s)
	@hack/fuzz $(FUZZTIME)

test-kernel: build ## a stock Linux NFS/RDMA client against the gateway before a directory, NFS-Ganesha and the Linux server; our requester against the latter
	@hack/deps kernel
	@hack/vm/prepare
	go test -tags kernel -timeout 60m -count=1 -v ./test/kernel $(if $(FULL),-args -full)
	go test -tags kernel -timeout 15m -count=1 -v ./test/hostile ./test/exhaustion

test-operator: ## the API and the operator against a real kube-apiserver, with gateways as pods
	@hack/deps test
	KUBEBUILDER_ASSETS="$$(hack/k8s/prepare kubernetes etcd)" go test -tags operator -timeout 30m -count=1 ./test/api ./test/chart ./test/operator ./internal/operator/objects ./internal/speaker/lease

test-verbs: ## provider, gateway, sluicectl and the image on rdma-core, on software RoCE and iWARP devices in the guest; FULL=1 makes 1,000 connections
	@hack/deps kernel verbs
	@hack/vm/prepare
	CGO_ENABLED=1 go test -tags verbs -count=1 ./pkg/rdma/verbs
	go test -tags 'kernel verbs' -timeout 60m -count=1 -v ./test/verbs $(if $(FULL),-args -full)

test-cluster: ## Kubernetes with two real nodes on this machine: a stock Linux client mounts over RDMA by Service IP
	@hack/deps vm bench cluster verbs
	@hack/vm/prepare
	@hack/k8s/prepare
	go test -tags cluster -timeout 60m -count=1 -v ./test/cluster

test-full: ## the full matrix: make test, each fuzz target for a minute, each NFS version on each backend
	$(MAKE) --no-print-directory test FUZZTIME=60s FULL=1

bench: build ## gateway, NFS-Ganesha and bare loops side by side; writes bench.json
	@hack/deps bench
	go run ./hack/bench -bin bin -o bench.json

bench-rtt: ## versions of RPC-over-RDMA at round-trip times of 10 µs to 1 ms, in virtual time; writes bench-rtt.json
	@cd hack/benchrtt && go test -count=1 -run '^TestBenchRTT$$' -args -o $(CURDIR)/bench-rtt.json

lint: ## static checks of the code, and of the prose in comments, pages and messages
	go vet ./...
	CGO_ENABLED=0 go run $(lint) run ./...
	go run ./hack/prose

clean: ## remove what was built
	rm -rf bin bench.json bench-rtt.json

.PHONY: help generate build image demo test test-quick fuzz test-kernel test-operator test-verbs test-cluster test-full bench bench-rtt lint clean

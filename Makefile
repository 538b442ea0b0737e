# `make` alone lists what there is. CI calls the same targets: see .ci/run.

GO      ?= go
LISTEN  ?= 127.0.0.1:8080
DATA    ?= ./budgetd-data
PKG     ?= ./...
RUN     ?= .
BENCH   ?= .
SEQUENCES ?= 100000
# 0: another one each time
SEED    ?= 0
FUZZTIME ?= 10s
# Per package: a hung test says where it hangs, long before CI gives up.
TIMEOUT ?= 15m
# Packages tested at a time. Each may run a Redis, a Redis Cluster and a
# PostgreSQL of its own.
JOBS    ?= 2

TOOL = $(GO) tool -modfile=tools/go.mod
# The official SDKs are needed by tests and examples alone, which are modules of
# their own.
MODULES = test/sdks clients/go/examples
# buf runs in proto/, where its configuration is.
BUF  = $(GO) tool -modfile=../tools/go.mod buf

.DEFAULT_GOAL := help
.PHONY: help run build test sequences mutants bench fuzz cover lint fmt-check vet staticcheck proto-check tidy-check generate fmt clean lab-holds clients-table

help: ## this list
	@echo "usage: make TARGET [NAME=value ...]"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

run: build ## start the demo broker on LISTEN (127.0.0.1:8080); needs nothing but Go
	bin/budgetd serve --demo --listen $(LISTEN) --data $(DATA)

build: ## build bin/budgetd
	$(GO) build -trimpath -o bin/budgetd ./cmd/budgetd

test: ## install what the tests need, then run those named RUN in PKG with the race detector
	.ci/install
	$(GO) test -race -count=1 -timeout=$(TIMEOUT) -p=$(JOBS) -run='$(RUN)' $(PKG)
ifeq ($(PKG),./...)
	for m in $(MODULES); do (cd $$m && $(GO) test -race -count=1 -timeout=$(TIMEOUT) -run='$(RUN)' ./...) || exit 1; done
endif

sequences: ## play SEQUENCES (100000) of the property suite in both engines: CONTRIBUTING.md
	.ci/install
	$(GO) test -count=1 -timeout=30m -p=2 -v -run='^TestSequences$$' ./reservation/memstore ./reservation/redisstore -sequences=$(SEQUENCES) -sequences.seed=$(SEED)

mutants: ## show that the suite catches each fault that the model is given
	$(GO) test -count=1 -timeout=30m -run='^TestEveryMutantIsCaught$$' ./reservation/storetest

bench: ## run the benchmarks named BENCH in PKG
	.ci/install
	$(GO) test -run='^$$' -bench='$(BENCH)' -benchmem -count=1 -timeout=1h -p=1 $(PKG)

lab-holds: ## print what each way of holding lets through on traces of model calls, with REDIS=URL on Redis: docs/holds.md
	$(GO) run ./test/lab/holds -redis='$(REDIS)'

clients-table: ## print what each kind of client gets through a limit: docs/pacing.md
	$(GO) test ./test/lab/clients -count=1 -v -run=Table

fuzz: ## run every fuzz target for FUZZTIME (10s)
	.ci/fuzz $(FUZZTIME)

cover: ## run the tests and print how much of each function they run
	.ci/install
	$(GO) test -count=1 -timeout=$(TIMEOUT) -p=$(JOBS) -coverpkg=./... -coverprofile=cover.out $(PKG)
	$(GO) tool cover -func=cover.out

lint: fmt-check vet staticcheck proto-check ## gofmt, go vet, staticcheck; buf lint, breaking changes, generated code up to date

fmt-check:
	@unformatted=$$("$$($(GO) env GOROOT)/bin/gofmt" -l .) || exit 1; \
	if [ -n "$$unformatted" ]; then echo "not formatted, run make fmt:" >&2; echo "$$unformatted" >&2; exit 1; fi

vet:
	$(GO) vet ./...
	for m in $(MODULES); do (cd $$m && $(GO) vet ./...) || exit 1; done

staticcheck:
	$(TOOL) staticcheck ./...
	for m in $(MODULES); do (cd $$m && $(GO) tool -modfile=$(CURDIR)/tools/go.mod staticcheck ./...) || exit 1; done

proto-check:
	cd proto && $(BUF) lint
	cd proto && $(BUF) format --diff --exit-code
	cd proto && $(BUF) breaking --against baseline.binpb
	proto/check-generated.sh

tidy-check: ## check that go.mod and go.sum name what the code needs; needs a network
	$(GO) mod tidy -diff
	for m in $(MODULES); do (cd $$m && $(GO) mod tidy -diff) || exit 1; done

generate: ## generate the Go of proto/
	cd proto && $(BUF) generate

fmt: ## format the Go code and the proto files
	"$$($(GO) env GOROOT)/bin/gofmt" -w .
	cd proto && $(BUF) format --write

clean: ## remove what was built here; the data in DATA stays
	rm -rf bin cover.out

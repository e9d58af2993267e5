# Every task of this repository. Rust and Go are all that `make demo` and `make test` need; `make check` also wants
# python3 with pip, `make e2e` root and containerd. What is built or installed once for a machine goes to ~/.cache/leasewarden (LEASEWARDEN_CACHE).

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# What tests, demo and crds are compiled with: one set for all of them, so that nothing is compiled twice. `examples`
# among the targets matters: it brings the dev-dependencies' features, which tests have anyway.
FEATURES := leasewarden/cli,leasewarden/testkit
WORKSPACE := --locked --workspace --features $(FEATURES)
BIN := $(or $(CARGO_TARGET_DIR),target)/debug
CRD := crds/changestreamleaders.leasewarden.dev.yaml
CHART := charts/leasewarden

TOOLS := $(or $(LEASEWARDEN_CACHE),$(HOME)/.cache/leasewarden)/tools
tool = $(shell hack/tools.sh --path $(1))
TOOLS_PATH = $(dir $(call tool,cargo-auditable))
REVISION = $(or $(shell git rev-parse HEAD 2>/dev/null),unknown)
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)

helm-docs = "$$($(BIN)/controlplane path helm-docs)" --chart-search-root $(CHART) --log-level warning

# Arguments for `cargo test`, for example ARGS='--test integration takeover'.
ARGS ?=

##@ Main

.PHONY: help
help: ## List the targets
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@/ { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@printf '%s\n' "" \
	  "make test LEASEWARDEN_KUBERNETES=1.36   tests on another Kubernetes version" \
	  "make test ARGS='--test integration'     arguments for cargo test" \
	  "make demo KEEP=1                        leaves the demo's control plane up"

.PHONY: build
build: ## Compile the program, the tools and the examples
	cargo build $(WORKSPACE) --bins --examples

.PHONY: test
test: ## Run all tests on a real control plane; the first time builds it (10 minutes or so)
	cargo build $(WORKSPACE) --lib --bins --examples --tests
	$(BIN)/controlplane run -- cargo test $(WORKSPACE) $(ARGS)

.PHONY: demo
demo: build ## See leaders elected, killed and replaced on a real API server
	@LEASEWARDEN_BIN=$(abspath $(BIN))/leasewarden LEASEWARDEN_WORKER_BIN=$(abspath $(BIN))/examples/worker \
	  $(BIN)/leasewarden-demo

.PHONY: image
image: $(TOOLS)/cargo-auditable ## Make the image without a container engine: target/image/leasewarden.tar
	PATH=$(TOOLS_PATH):$$PATH LEASEWARDEN_REVISION=$(REVISION) hack/static.sh target/image
	LEASEWARDEN_REVISION=$(REVISION) hack/image.sh target/image/leasewarden.tar \
	  ghcr.io/leasewarden/leasewarden:$(VERSION) target/image/leasewarden

.PHONY: e2e
e2e: $(TOOLS)/cargo-auditable ## The chart and the image on a node with a real kubelet and containerd; needs root (ARGS=NAME)
	cargo build $(WORKSPACE) --bins --examples
	hack/e2e.sh $(ARGS)

.PHONY: soak
soak: ## Leaders under random faults, and what came of it; ARGS='--hand-overs 100000', ARGS=--help
	cargo build --locked --release -p leasewarden-soak -p leasewarden-controlplane --bins
	$(dir $(BIN))release/leasewarden-soak $(ARGS)

.PHONY: bench-election
bench-election: ## Measure leader election beside client-go's (6 minutes; ARGS=--json)
	cargo build --locked --release -p leasewarden-bench -p leasewarden-controlplane --bins
	@$(dir $(BIN))release/leasewarden-bench $(ARGS)

.PHONY: bench-operator
bench-operator: ## Measure how soon a status is true, and what the operator costs (10 minutes; ARGS=--json)
	cargo build --locked --release -p leasewarden-bench -p leasewarden-controlplane --bins
	cargo build --locked --release -p leasewarden --features cli --bin leasewarden
	@$(dir $(BIN))release/leasewarden-bench-operator $(ARGS)

.PHONY: controlplane
controlplane: ## Build etcd, the Kubernetes programs and kubectl now rather than at first use
	cargo build $(WORKSPACE) --bins --examples
	$(BIN)/controlplane build

##@ Checks

.PHONY: check
check: fmt-check shellcheck spelling unused deny graph clippy features crds-check chart-check docs consumer package ## Run all checks, the quick ones first

.PHONY: fmt
fmt: ## Format the code
	cargo fmt --all
	cargo fmt --manifest-path tests/consumer/Cargo.toml

.PHONY: fmt-check
fmt-check: ## Check the format
	cargo fmt --all --check
	cargo fmt --manifest-path tests/consumer/Cargo.toml --check

.PHONY: clippy
clippy: ## Lint everything that tests are built with, warnings denied
	cargo clippy $(WORKSPACE) --all-targets -- -D warnings
	cargo clippy --locked -p leasewarden-e2e --test e2e -- -D warnings

.PHONY: features
features: ## Lint each feature set that people use by itself
	hack/features.sh

.PHONY: docs
docs: ## Build the API documentation, warnings denied
	RUSTDOCFLAGS='-D warnings' cargo doc $(WORKSPACE) --no-deps

.PHONY: deny
deny: $(TOOLS)/cargo-deny ## Check banned crates, licences and sources
	$(call tool,cargo-deny) --locked --workspace check --hide-inclusion-graph bans licenses sources
	$(call tool,cargo-deny) --locked --workspace --all-features check --hide-inclusion-graph licenses sources

.PHONY: unused
unused: $(TOOLS)/cargo-machete ## Find dependencies that nothing uses
	$(call tool,cargo-machete)

.PHONY: graph
graph: ## Check that the library is lean and that the program has one TLS provider
	hack/graph.sh

.PHONY: consumer
consumer: ## Build and run a program outside the workspace that embeds the library
	hack/consumer.sh

.PHONY: spelling
spelling: $(TOOLS)/typos ## Check the spelling
	$(call tool,typos)

.PHONY: shellcheck
shellcheck: $(TOOLS)/shellcheck ## Lint the shell scripts
	$(call tool,shellcheck) .ci/run hack/*.sh

.PHONY: crds-check
crds-check: build ## Check that crds/ is what the code says
	@diff -u $(CRD) <($(BIN)/leasewarden crd) || \
	  { echo "$(CRD) differs from the code; run: make crds" >&2; exit 1; }

.PHONY: chart-check
chart-check: build ## Check that what is generated in the chart is fresh, and lint it
	@diff -u $(CHART)/files/crd.yaml $(CRD) && \
	  diff -u $(CHART)/values.schema.json <($(BIN)/leasewarden-chart-schema $(CHART)/values.yaml) && \
	  diff -u $(CHART)/README.md <($(helm-docs) --dry-run) || \
	  { echo "$(CHART) is not fresh; run: make chart" >&2; exit 1; }
	"$$($(BIN)/controlplane path helm)" lint --strict --quiet $(CHART)

.PHONY: package
package: ## Check that the published crate has what it needs and nothing else
	hack/package.sh

##@ Making things

.PHONY: crds
crds: build ## Write crds/ from the code
	mkdir -p crds
	$(BIN)/leasewarden crd > $(CRD).new && mv $(CRD).new $(CRD)

.PHONY: chart
chart: crds ## Write what is generated in the chart: CRD, schema of the values, README
	cp $(CRD) $(CHART)/files/crd.yaml
	$(BIN)/leasewarden-chart-schema $(CHART)/values.yaml > $(CHART)/values.schema.json.new
	mv $(CHART)/values.schema.json.new $(CHART)/values.schema.json
	$(helm-docs) --dry-run > $(CHART)/README.md.new && mv $(CHART)/README.md.new $(CHART)/README.md

.PHONY: tools
tools: $(addprefix $(TOOLS)/,cargo-deny cargo-machete cargo-auditable typos shellcheck) ## Install what the checks need, into the cache

.PHONY: clean
clean: ## Remove what cargo has built; the cache with the control plane stays
	cargo clean
	rm -rf tests/consumer/target tests/consumer/Cargo.lock

# Never a file of that name: the version in it is known to the script alone, and a tool that is there costs nothing.
$(TOOLS)/%:
	@hack/tools.sh $(@F)

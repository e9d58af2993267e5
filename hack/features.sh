#!/usr/bin/env bash
# Clippy over the feature sets that people use, warnings denied. The set that tests are built with is `make clippy`'s
# own; here is what it hides: code that compiles only because another feature brought its dependency.
#
# Without `cli` nothing chooses a Kubernetes version, as it should be, so k8s-openapi is told one by its variable.
# It is set for those builds alone: where a version feature is on, it would only have k8s-openapi built again.
set -euo pipefail
cd "$(dirname "$0")/.."

clippy() { # name, options...
    echo "clippy: $1"
    shift
    cargo clippy --quiet --locked -p leasewarden "$@" -- -D warnings
}

# In this order each builds on what the one before compiled.
for features in "" testkit rustls-tls,ring crd operator; do
    K8S_OPENAPI_ENABLED_VERSION=1.33 clippy "${features:-no features}" --lib --features "$features"
done
clippy cli --lib --bins --features cli
# Needs libssl-dev and pkg-config for openssl-tls, a C compiler for aws-lc-rs.
clippy "all features, all targets" --all-features --all-targets

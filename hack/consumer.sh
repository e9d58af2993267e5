#!/usr/bin/env bash
# Builds tests/consumer, a program outside the workspace that embeds the library as a user does, with two Kubernetes
# versions, and runs it: that TLS works with the one provider it chose shows only at run time.
set -euo pipefail
cd "$(dirname "$0")/.."

# The workspace's versions, and its compiled dependencies where features agree.
cp Cargo.lock tests/consumer/Cargo.lock
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}"
# What would choose a version for it would hide that it has to.
unset K8S_OPENAPI_ENABLED_VERSION

cd tests/consumer
cargo run --quiet
cargo check --quiet --no-default-features --features v1_37

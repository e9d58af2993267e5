#!/usr/bin/env bash
# What the dependency graph promises: the library without features is lean and chooses nothing for the application
# that embeds it, and the program has exactly one TLS provider. Reads Cargo.lock only; compiles nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

failed=0
complain() {
    echo "graph: $*" >&2
    failed=1
}

# The names of all crates that a normal build of leasewarden has here.
crates() { # cargo tree options...
    cargo tree --locked -p leasewarden --edges normal,build --prefix none --format '{p}' "$@" |
        awk '{ print $1 }' | sort -u
}

tls='^(ring|aws-lc-rs|aws-lc-sys|openssl|openssl-sys|native-tls|boring)$'

lean=$(crates)
for crate in $(grep -E "$tls" <<<"$lean") $(grep -E '^(rustls|hyper-rustls|tokio-rustls|hyper-openssl)$' <<<"$lean"); do
    complain "$crate is in the graph without features: the application chooses TLS, not the library"
done
for crate in clap schemars tracing-subscriber kube-runtime kube-derive; do
    if grep -qx "$crate" <<<"$lean"; then
        complain "$crate is in the graph without features: it belongs to the operator or the program"
    fi
done
chosen=$(cargo tree --locked -p leasewarden --edges normal,build,features --prefix none |
    grep -oE 'k8s-openapi feature "v1_[0-9]+"' | sort -u || true)
[ -z "$chosen" ] || complain "$chosen is on without features: the application chooses the Kubernetes version"

providers=$(crates --features cli | grep -E "$tls" || true)
[ "$providers" = ring ] ||
    complain "the program's TLS provider should be ring alone, and is: ${providers//$'\n'/, }"

[ "$failed" = 0 ] || exit 1
echo "graph: $(wc -l <<<"$lean") crates without features, no TLS and no Kubernetes version chosen; the program's one TLS provider is $providers"

#!/usr/bin/env bash
# Compiles the program for the image: static, with the list of its dependencies in it (cargo-auditable; `syft` and `grype`
# read it), and the same bytes from the same sources wherever they lie.
#
#   hack/static.sh FOLDER [example...]     the program, and examples if named, into FOLDER
set -euo pipefail
cd "$(dirname "$0")/.."

out=${1:?the folder that the program is put into}
shift
mkdir -p "$out"
out=$(cd "$out" && pwd)
target=$(rustc -vV | sed -n 's/^host: //p')
case $target in
    *-linux-gnu) ;;
    *)
        echo "static: images are made on Linux with GNU's C library, and this is $target" >&2
        exit 1
        ;;
esac
command -v cargo-auditable >/dev/null || {
    echo "static: cargo-auditable is missing; install it by: cargo install --locked cargo-auditable (make image does)" >&2
    exit 1
}

# With --target the flags are for the program alone, and not for what only runs while compiling.
export RUSTFLAGS="-C target-feature=+crt-static --remap-path-prefix=$PWD=/build --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
examples=()
for example in "$@"; do
    examples+=(--example "$example")
done
cargo auditable build --locked --release --target "$target" -p leasewarden --features cli --bin leasewarden "${examples[@]}"
built=${CARGO_TARGET_DIR:-target}/$target/release
cp "$built/leasewarden" "$out/"
for example in "$@"; do
    cp "$built/examples/$example" "$out/"
done

#!/usr/bin/env bash
# Packs the crate as a release would and compiles what was packed: a file that is used but not in Cargo.toml's
# `include` fails here and not at the first user's. Asks no registry for anything but dependencies.
set -euo pipefail
cd "$(dirname "$0")/.."

# The library chooses no Kubernetes version, so compiling it alone needs one; so does a real `cargo publish`.
export K8S_OPENAPI_ENABLED_VERSION=1.33
files=$(cargo package --quiet --locked --allow-dirty --list)

unexpected=$(grep -vE '^(src|examples|crds)/|^(Cargo\.(toml|toml\.orig|lock)|README\.md|CHANGELOG\.md|LICENSE|\.cargo_vcs_info\.json)$' \
    <<<"$files" || true)
[ -z "$unexpected" ] || {
    printf 'package: these do not belong into the published crate:\n%s\n' "$unexpected" >&2
    exit 1
}
for file in README.md CHANGELOG.md LICENSE src/lib.rs; do
    grep -qx "$file" <<<"$files" || {
        echo "package: $file is missing from the published crate" >&2
        exit 1
    }
done
cargo package --quiet --locked --allow-dirty
echo "package: $(wc -l <<<"$files") files, and they compile"

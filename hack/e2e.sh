#!/usr/bin/env bash
# `make e2e`: the chart and the image on a node with a real kubelet and containerd.
#
# Everything runs in namespaces that this script makes (processes, mounts, network, host name), with its files in memory.
# They end with the script, also when it is killed; and with them whatever was started in them. What is not in a namespace
# (cgroups, three sysctls that the kubelet sets) is put back here.
#
#   hack/e2e.sh [arguments for the tests, such as a name]
set -euo pipefail
cd "$(dirname "$0")/.."

BIN=${CARGO_TARGET_DIR:-target}/debug
CGROUPS=/sys/fs/cgroup
SYSCTLS="vm.overcommit_memory kernel.panic kernel.panic_on_oops"

die() {
    echo "e2e: $*" >&2
    exit 1
}

# Inside the namespaces, as their first process.
if [ "${1:-}" = --inside ]; then
    tests=$2 images=$3 cgroup=$4 coordinator=$5
    shift 5
    mount --make-rshared /
    for folder in /run /var/lib /var/log; do
        mount -t tmpfs -o mode=755 tmpfs "$folder"
    done
    mkdir -p /run/e2e/tmp /var/log/pods /var/log/containers
    hostname e2e-node
    export TMPDIR=/run/e2e/tmp LEASEWARDEN_E2E_FOLDER=/run/e2e LEASEWARDEN_E2E_IMAGES=$images \
        LEASEWARDEN_E2E_CGROUP=$cgroup LEASEWARDEN_E2E_COORDINATOR=$coordinator
    code=0
    "$tests" --test-threads=1 --nocapture "$@" || code=$?
    if [ "$code" != 0 ] && [ -n "${LEASEWARDEN_E2E_KEEP_LOGS:-}" ]; then
        mkdir -p "$LEASEWARDEN_E2E_KEEP_LOGS"
        cp /run/e2e/*.log "$LEASEWARDEN_E2E_KEEP_LOGS/" || true
        cp -r /run/e2e/pod-logs "$LEASEWARDEN_E2E_KEEP_LOGS/" || true
    fi
    exit "$code"
fi

[ "$(id -u)" = 0 ] || die "root is needed, for namespaces and containerd: sudo -E make e2e"
missing=()
for program in containerd:containerd ctr:containerd runc:runc iptables:iptables ip:iproute2 unshare:util-linux \
    setpriv:util-linux cc:gcc faketime:faketime pgrep:procps; do
    command -v "${program%%:*}" >/dev/null || missing+=("${program##*:}")
done
[ -x /usr/lib/cni/bridge ] || missing+=(containernetworking-plugins)
[ ${#missing[@]} = 0 ] || die "missing; on Debian: apt-get install --no-install-recommends $(printf '%s\n' "${missing[@]}" | sort -u | tr '\n' ' ')"
unshare --mount --pid --net --fork true || die "this machine makes no namespaces, which the node runs in"

work=$(mktemp -d)
inside=
cgroup=leasewarden-e2e-$$
declare -A before
for name in $SYSCTLS; do
    before[$name]=$(sysctl -n "$name")
done

# All hierarchies of the first version, or the only one of the second.
hierarchies() {
    if [ -e $CGROUPS/cgroup.controllers ]; then
        echo $CGROUPS
    else
        for folder in "$CGROUPS"/*/; do
            [ ! -e "$folder/cgroup.procs" ] || echo "${folder%/}"
        done
    fi
}

remove_cgroups() { # name
    local hierarchy
    for hierarchy in $(hierarchies); do
        [ ! -d "$hierarchy/$1" ] || find "$hierarchy/$1" -depth -type d -exec rmdir {} + || return
    done
}

restore() {
    local code=$? name
    trap - EXIT
    # The first process of the namespace, with which all others end.
    [ -z "$inside" ] || kill -KILL "$inside" 2>/dev/null || true
    wait
    for name in $SYSCTLS; do
        sysctl -q -w "$name=${before[$name]}" || code=1
    done
    # The last processes of the namespace may be a moment in dying.
    for _ in $(seq 100); do
        remove_cgroups "$cgroup" 2>/dev/null && break
        sleep 0.1
    done
    rm -rf "$work"
    leftovers || code=1
    exit "$code"
}

# Whether anything is left that was not there before.
leftovers() {
    local left=()
    local hierarchy process
    for hierarchy in $(hierarchies); do
        [ ! -d "$hierarchy/$cgroup" ] || left+=("the cgroup $hierarchy/$cgroup")
    done
    for process in $(pgrep -f "/run/e2e/(containerd|kubelet)" || true); do
        left+=("process $process: $(tr '\0' ' ' <"/proc/$process/cmdline" 2>/dev/null || true)")
    done
    ! grep -q ' /run/e2e' /proc/mounts || left+=("mounts below /run/e2e")
    [ ! -e /run/e2e ] || left+=(/run/e2e)
    [ ${#left[@]} = 0 ] || { printf 'e2e: left behind: %s\n' "${left[@]}" >&2; return 1; }
}
trap restore EXIT
trap 'exit 143' TERM
trap 'exit 130' INT

# Of runs that were killed: their processes are gone, and nobody else has this name.
for hierarchy in $(hierarchies); do
    for folder in "$hierarchy"/leasewarden-e2e-*/; do
        [ -d "$folder" ] || continue
        pid=${folder%/}
        pid=${pid##*-}
        [ -d "/proc/$pid" ] || remove_cgroups "leasewarden-e2e-$pid" || true
    done
    mkdir "$hierarchy/$cgroup"
    # A cpuset without processors and memory takes nobody.
    for file in cpuset.cpus cpuset.mems; do
        [ ! -e "$hierarchy/$cgroup/$file" ] || cat "$hierarchy/$file" >"$hierarchy/$cgroup/$file" 2>/dev/null || true
    done
done

echo "e2e: compiling the tests"
cargo build --locked --quiet -p leasewarden-e2e --test e2e
tests=$(cargo build --locked --quiet -p leasewarden-e2e --test e2e --message-format=json |
    sed -n 's/.*"executable":"\([^"]*\/e2e-[^"]*\)".*/\1/p' | tail -1)
[ -x "$tests" ] || die "cargo did not say where the tests are"
for program in kubelet kube-scheduler helm promtool; do
    "$BIN/controlplane" path "$program" >/dev/null
done

echo "e2e: making the images"
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
PATH=$(dirname "$(hack/tools.sh --path cargo-auditable)"):$PATH hack/static.sh "$work/bin" coordinator
cc -Os -static -o "$work/bin/pause" tests/e2e/src/pause.c
mkdir "$work/images"
hack/image.sh "$work/images/leasewarden.tar" "ghcr.io/leasewarden/leasewarden:$version" "$work/bin/leasewarden"
hack/image.sh "$work/again.tar" "ghcr.io/leasewarden/leasewarden:$version" "$work/bin/leasewarden" >/dev/null
cmp "$work/images/leasewarden.tar" "$work/again.tar" || die "the same program made another image"
readelf --sections "$work/bin/leasewarden" | grep -q '\.dep-v0' || die "the program does not say what it is made of"
! readelf --program-headers "$work/bin/leasewarden" | grep -q INTERP || die "the program is not static"
hack/image.sh "$work/images/coordinator.tar" leasewarden.local/coordinator:1 "$work/bin/coordinator"
hack/image.sh "$work/images/pause.tar" leasewarden.local/pause:1 "$work/bin/pause"

echo "e2e: starting the node"
# In the background: bash heeds no signal while it waits for a command in the foreground.
setpriv --pdeathsig KILL unshare --fork --kill-child --pid --mount-proc --mount --net --uts \
    "$0" --inside "$(realpath "$tests")" "$work/images" "$cgroup" "$(realpath "$BIN/examples/coordinator")" "$@" &
inside=$!
code=0
wait "$inside" || code=$?
inside=
(exit "$code")

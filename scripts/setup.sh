#!/bin/sh
# Installs what Hawker needs, and nothing twice: Debian packages, a virtual environment in .venv, Hawker itself.
#
#   scripts/setup.sh run      what a node and `make demo` need
#   scripts/setup.sh test     that, and what the tests and checks need
#   scripts/setup.sh judges   that, and what the long tests have others' programs say
#   scripts/setup.sh bench    what the tests need, and what the benchmarks compare with
#
# Each step prints one line; its whole output is in build/setup/. Without root, what is missing is named and left out.
set -eu
cd "$(dirname "$0")/.."

level=${1:-run}
case $level in
    run | test | judges | bench) ;;
    *) echo "usage: $0 run|test|judges|bench" >&2 && exit 2 ;;
esac
venv=.venv
logs=build/setup
worked=no
missing=
PATH="$PATH:/usr/sbin:/sbin" # where Debian keeps nft and ip, and where a user's PATH does not look
export PATH DEBIAN_FRONTEND=noninteractive PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1

say() { echo "setup: $*"; }

# step NAME TITLE COMMAND...: run the command with its output in a log; if it fails, say which log, and stop.
step() {
    name=$1 title=$2
    shift 2
    worked=yes
    mkdir -p "$logs"
    began=$(date +%s)
    say "$title ..."
    if "$@" >"$logs/$name.log" 2>&1 </dev/null; then
        say "$title: done in $(($(date +%s) - began)) s"
    else
        tail -n 15 "$logs/$name.log" >&2
        echo "setup: failed: $title; read $logs/$name.log" >&2
        exit 1
    fi
}

# stale NAME FILE...: true unless NAME was finished with files of exactly this content, in this place.
stale() {
    mark=$venv/.done-$1
    shift
    inputs=$({ pwd && sha256sum "$@"; } | sha256sum)
    [ "$(cat "$mark" 2>/dev/null)" != "$inputs" ]
}
finish() { echo "$inputs" >"$mark"; }

# --- Debian packages -------------------------------------------------------------------------------------------------

modern='import sys; sys.exit(sys.version_info < (3, 11))'

find_python() {
    for candidate in python3.11 python3 python3.12 python3.13 python3.14; do
        if "$candidate" -c "$modern" 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}

# need PACKAGE COMMAND: what counts is the command, wherever it came from.
need() { command -v "$2" >/dev/null 2>&1 || missing="$missing $1"; }

need_venv() {
    "$venv/bin/python" -c "$modern" 2>/dev/null && return
    python=$(find_python) && "$python" -c 'import ensurepip' 2>/dev/null && return
    missing="$missing python3-venv" # brings python3 along
}

find_missing() {
    missing=
    need crun crun
    need nftables nft
    ls /usr/lib/*/libnghttp2.so.14 >/dev/null 2>&1 || missing="$missing libnghttp2-14" # HTTP/2 of the edge
    need erofs-utils mkfs.erofs
    need e2fsprogs mke2fs # volumes
    need iproute2 ip
    need kmod depmod # these three: the kernel of microVMs and its initramfs
    need cpio cpio
    need lz4 lz4
    [ -e /etc/ssl/certs/ca-certificates.crt ] || missing="$missing ca-certificates"
    [ -e /etc/protocols ] || missing="$missing netbase" # nft knows protocols by name only with it
    need_venv
    [ "$level" = run ] && return
    need wireguard-go wireguard-go # machines of two hosts
    need wireguard-tools wg
    need tcpdump tcpdump
    need xfsprogs mkfs.xfs # file systems whose files share blocks
    need btrfs-progs mkfs.btrfs
    need docker-registry docker-registry
    need debootstrap debootstrap
    need nodejs node
    need npm npm
    [ "$(uname -m)" != x86_64 ] || need qemu-system-x86 qemu-system-x86_64
    [ "$level" = test ] && return
    need iperf3 iperf3
    if [ "$level" = judges ]; then
        need chromium chromium
        need libnss3-tools certutil # tells it which roots to trust
        need hey hey                # asks a thousand times a second
        return
    fi
    need podman podman
    need haproxy haproxy # these three: beside the edge
    need caddy caddy
    need wrk wrk
    need unbound unbound # beside the resolver, and what asks both
    need dnsperf dnsperf
}

install_packages() {
    apt-get update -o Acquire::Retries=3 || echo "some package lists could not be read; going on with what is there"
    # shellcheck disable=SC2086  # a list of words
    apt-get install --yes --no-install-recommends -o DPkg::Lock::Timeout=120 -o Acquire::Retries=3 $missing || return 1
    # Debian starts a registry on all addresses as soon as it is installed. The tests run their own on loopback.
    # Likewise what the benchmarks start by themselves.
    for service in docker-registry haproxy caddy unbound; do
        case "$missing " in
            *" $service "*) [ ! -d /run/systemd/system ] || systemctl disable --now "$service" ;;
        esac
    done
}

find_missing
if [ -n "$missing" ]; then
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
        step packages "Debian packages:$missing" install_packages
    else
        say "missing:$missing"
        say "cannot install them here: as root, run 'apt-get install --no-install-recommends$missing'"
        say "going on without; what needs them will not work"
    fi
fi

# --- the virtual environment -----------------------------------------------------------------------------------------

if ! "$venv/bin/python" -c "$modern" 2>/dev/null; then
    python=$(find_python) || { echo "setup: failed: no Python 3.11 or later; install python3" >&2 && exit 1; }
    step venv "virtual environment in $venv with $python" "$python" -m venv --clear "$venv"
fi
pip() { "$venv/bin/python" -m pip "$@"; }

if stale requirements requirements.txt requirements-build.txt; then
    step requirements "Python packages that Hawker runs on and is built with" \
        pip install --require-hashes -r requirements.txt -r requirements-build.txt
    finish
fi

# Compiled here once, as pip does with what it installs: where Python may write no bytecode (PYTHONDONTWRITEBYTECODE),
# every daemon and every command would otherwise compile its sources again.
install_hawker() {
    pip install --no-deps --no-build-isolation --no-index --editable . &&
        "$venv/bin/python" -m compileall -q src/hawker
}

# shellcheck disable=SC2046  # file names of ours, without blanks
if stale hawker pyproject.toml requirements-build.txt src/hawker/version.py $(find hatch_build.py guest -type f 2>/dev/null | sort) ||
    [ ! -e src/hawker/_guest/pilot ] || [ ! -e src/hawker/_guest/hello ]; then
    step hawker "Hawker itself and its guest program" \
        install_hawker
    finish
fi

if [ "$level" != run ] && stale requirements-dev requirements-dev.txt; then
    step requirements-dev "Python packages that the tests and checks need" \
        pip install --require-hashes -r requirements-dev.txt
    finish
fi

# --- clients that others wrote, which the tests drive ------------------------------------------------------------------

# Each in a place of its own below build/clients: what it needs must not meet what Hawker needs.
clients=build/clients
install_fly_python_sdk() {
    .venv/bin/python -m venv --clear $clients/fly_python_sdk &&
        $clients/fly_python_sdk/bin/python -m pip install --require-hashes -r tests/clients/fly_python_sdk/requirements.txt
}
install_sslyze() {
    .venv/bin/python -m venv --clear $clients/sslyze &&
        $clients/sslyze/bin/python -m pip install --require-hashes -r tests/clients/sslyze/requirements.txt
}
install_fly_admin() {
    rm -rf $clients/fly_admin && mkdir -p $clients/fly_admin &&
        cp tests/clients/fly_admin/package.json tests/clients/fly_admin/package-lock.json $clients/fly_admin &&
        npm ci --prefix $clients/fly_admin --ignore-scripts --no-audit --no-fund --no-update-notifier --fetch-retries=1
}
# client NAME WHAT IT HAS, FILE...: install it if its files changed; the tests of one that cannot be had are skipped.
client() {
    name=$1 title=$2 has=$clients/$1/$3
    shift 3
    if ! stale "$name" "$@" && [ -e "$has" ]; then return; fi
    if (step "$name" "$title, a client for the tests" "install_$name"); then
        finish
    else
        say "$title cannot be installed here: its tests are skipped"
    fi
    worked=yes
}

if [ "$level" != run ]; then
    client fly_python_sdk fly-python-sdk bin/python tests/clients/fly_python_sdk/requirements.txt
    if command -v npm >/dev/null; then
        client fly_admin fly-admin node_modules tests/clients/fly_admin/package.json tests/clients/fly_admin/package-lock.json
    else
        say "no npm: the tests of fly-admin are skipped"
    fi
fi
if [ "$level" = judges ]; then
    client sslyze sslyze bin/sslyze tests/clients/sslyze/requirements.txt
fi

# --- the kernel that microVMs boot in the tests ------------------------------------------------------------------------

# Imported as a user would, into a data directory of its own; nothing of it is installed on the host.
kernel=build/kernel
import_kernel() { "$venv/bin/hawker" kernel import --data-dir "$kernel"; }

if [ "$level" != run ]; then
    # shellcheck disable=SC2046  # file names of ours, without blanks
    if stale kernel $(find src/hawker/runtime/kernel -name '*.py' | sort) || ! ls $kernel/kernels/*/record.json >/dev/null 2>&1; then
        if (step kernel "a kernel for the tests of microVMs" import_kernel); then
            finish
        else
            say "no kernel can be had here: the tests that boot one are skipped"
        fi
        worked=yes
    fi
fi

# --- what the benchmarks compare with ---------------------------------------------------------------------------------

# Each in a place of its own below build/bench, so that nothing of it is in Hawker's environment.
install_dbos() {
    .venv/bin/python -m venv --clear build/bench/dbos &&
        build/bench/dbos/bin/python -m pip install --require-hashes -r bench/peers/requirements.txt
}
build_go() { GOTOOLCHAIN=local "$go" build -C "bench/peers/$1" -mod=readonly -o "$PWD/build/bench/$1" .; }
build_peer() { # of bench/peers: its directory, its name for people, the script that it is beside
    # shellcheck disable=SC2046  # file names of ours, without blanks
    if [ -z "$go" ]; then
        say "no Go toolchain: $2 is left out of $3; it needs Go 1.23 and a module proxy"
    elif stale "$1" $(find "bench/peers/$1" -type f | sort) || [ ! -x "build/bench/$1" ]; then
        if (step "$1" "$2, for $3" build_go "$1"); then
            finish
        else
            say "$2 cannot be built here: it is left out of $3"
        fi
        worked=yes
    fi
}

if [ "$level" = bench ]; then
    PATH="$PATH:/usr/local/go/bin" # where Go's own archive is unpacked
    go=$(command -v go) || go=
    if stale dbos bench/peers/requirements.txt || [ ! -x build/bench/dbos/bin/python ]; then
        step dbos "DBOS, for bench/engine.py" install_dbos
        finish
    fi
    build_peer superfly_fsm superfly/fsm bench/engine.py
    build_peer coredns CoreDNS bench/resolver.py
fi

if [ $worked = yes ]; then say "ready"; else say "up to date"; fi

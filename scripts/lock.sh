#!/bin/sh
# Locks what is installed: versions and hashes, for every platform, from pyproject.toml. Needs `uv`; run by `make lock`.
# requirements.txt is what Hawker runs on, -build what its build needs, -dev what its checks and tests need.
set -eu
cd "$(dirname "$0")/.."

PATH="$PWD/.venv/bin:$PATH"
command -v uv >/dev/null || { echo "lock: uv is missing; install it with '.venv/bin/pip install uv'" >&2; exit 1; }

lock() {
    output=$1
    shift
    # UV_* and index settings of this machine must not leak into the files, hence --no-config and no header.
    uv pip compile --quiet --no-config --universal --python-version 3.11 --generate-hashes \
        --no-annotate --no-header --no-emit-index-url --no-emit-find-links "$@" --output-file "$output"
    echo "lock: $output"
}

build_requirements='import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")'

lock requirements.txt pyproject.toml
python3 -c "$build_requirements" | lock requirements-build.txt --constraints requirements.txt -
lock requirements-dev.txt --constraints requirements.txt --constraints requirements-build.txt --group dev

# A client that the tests drive in an environment of its own: it needs older packages than ours.
echo "fly-python-sdk==0.3.4" | lock tests/clients/fly_python_sdk/requirements.txt -
# One that must not meet ours: it wants an older `cryptography`.
echo "sslyze==6.3.1" | lock tests/clients/sslyze/requirements.txt -

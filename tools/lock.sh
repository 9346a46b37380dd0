#!/usr/bin/env bash
# Write constraints.txt: the versions `make setup` installs, for every platform, without addresses.
# Usage: tools/lock.sh <uv>
set -euo pipefail

cd "$(dirname "$0")/.."
resolved=$("$1" pip compile --quiet --universal --python-version 3.11 --upgrade --all-extras --group dev \
    --no-header --no-annotate --no-emit-index-url --no-emit-find-links pyproject.toml)
printf '# The versions `make setup` installs. Written by `make lock`.\n%s\n' "$resolved" >constraints.txt

#!/bin/sh
# Runs all of seqline here: a Redis and a Postgres of its own, two gateways, a worker. Ctrl-C stops everything; the data stay in .seqline.
# Installs what is missing from the system's packages first (see install-packages.sh). Arguments are passed on; --help shows them.
set -eu
cd "$(dirname "$0")/.."

sh deploy/install-packages.sh

if ! command -v cargo >/dev/null 2>&1 && [ -x "$HOME/.cargo/bin/cargo" ]; then
    PATH="$HOME/.cargo/bin:$PATH"
fi
if ! command -v cargo >/dev/null 2>&1; then
    echo "cargo was not found; install the Rust toolchain from https://rustup.rs" >&2
    exit 1
fi
if [ ! -x target/release/seqline ]; then
    echo "Building (the first time takes some minutes) ..." >&2
fi
# In place of this shell, so that Ctrl-C and SIGTERM reach seqline itself.
exec cargo run --release --locked --bin seqline -- dev "$@"

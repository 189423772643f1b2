#!/bin/sh
# Installs from the system's packages what is missing to build and run seqline: redis-server, Postgres, a C compiler,
# make, and curl for the lines that are printed.
# Says what it installs; on a system that it does not know it names the packages and fails. Installs nothing when nothing is missing.
# With --for-tests also what only tests use: nginx, PgBouncer, Chromium, Python with its venv for schemathesis, and Node with npm for the client module.
# Services that the packages bring are not started: seqline runs servers of its own, and whatever already runs here is left alone.
set -eu

missing=
need() { missing="$missing $1"; }

have() { command -v "$1" >/dev/null 2>&1; }

have_postgres() {
    for bin in /usr/lib/postgresql/*/bin; do
        [ -x "$bin/postgres" ] && [ -x "$bin/initdb" ] && return 0
    done
    have postgres && have initdb
}

have redis-server || have valkey-server || need redis-server
have_postgres || need postgresql
have cc || need gcc
have cc && [ -e /usr/include/stdio.h ] || need libc6-dev
have make || need make
have curl || need curl
if [ "${1:-}" = --for-tests ]; then
    have nginx || [ -x /usr/sbin/nginx ] || need nginx
    have pgbouncer || [ -x /usr/sbin/pgbouncer ] || need pgbouncer
    have node || have nodejs || need nodejs
    have npm || need npm
    have chromium || have chromium-browser || have google-chrome || need chromium
    have openssl || need openssl
    have python3 && python3 -c 'import ensurepip, venv' 2>/dev/null || need python3-venv
fi
[ -e /etc/ssl/certs/ca-certificates.crt ] || [ -e /etc/pki/tls/certs/ca-bundle.crt ] || [ -e /etc/ssl/cert.pem ] || need ca-certificates

[ -n "$missing" ] || exit 0

like=
[ -r /etc/os-release ] && like=$(. /etc/os-release && echo "${ID:-} ${ID_LIKE:-}")
case " $like " in
*" debian "* | *" ubuntu "*) ;;
*)
    echo "seqline needs these packages (by their Debian names), and does not know how to install them here:$missing" >&2
    exit 1
    ;;
esac

as_root=
if [ "$(id -u)" -ne 0 ]; then
    if ! have sudo; then
        echo "seqline needs these packages; please run as root: apt-get install$missing" >&2
        exit 1
    fi
    as_root=sudo
fi

echo "Installing from the system's packages:$missing" >&2
# Debian starts a service as soon as it is installed, unless this file says no. It is there for the time of the installation only.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' | $as_root sh -c "cat >$policy && chmod 755 $policy"
    trap '$as_root rm -f "$policy"' EXIT
    trap 'exit 130' INT TERM
fi
apt="env DEBIAN_FRONTEND=noninteractive apt-get -q"
$as_root $apt update
# shellcheck disable=SC2086 # one word for each package
$as_root $apt install -y --no-install-recommends $missing
echo "Installed:$missing. Their services were not started." >&2

#!/usr/bin/env bash
# Installs the peers that the integration tests and benchmarks run against,
# from Debian's packages: HAProxy, nginx with its stream module, curl,
# openssl, nc, socat, ip and nft. Does nothing where they are there already.
#
# Where it can't install (no root, no apt), it says what is missing: an error
# where CI=true, a loud word elsewhere; the tests that need the peer then
# skip, as loudly.
set -uo pipefail

missing=()
need() { # command package...
	local cmd=$1
	shift
	PATH=$PATH:/usr/sbin:/sbin command -v "$cmd" >/dev/null 2>&1 || missing+=("$@")
}
need haproxy haproxy
need nginx nginx-light
[ -e /usr/lib/nginx/modules/ngx_stream_module.so ] || missing+=(libnginx-mod-stream)
need curl curl
need openssl openssl
need nc netcat-openbsd
need socat socat
need ip iproute2
need nft nftables
[ ${#missing[@]} -eq 0 ] && exit 0

fail() {
	echo "integration: missing: ${missing[*]}: $1" >&2
	[ "${CI:-}" = true ] && exit 1
	exit 0
}
command -v apt-get >/dev/null || fail "this system has no apt-get; install them by hand"
run=()
if [ "$(id -u)" != 0 ]; then
	sudo -n true 2>/dev/null || fail "not root; run: sudo apt-get install ${missing[*]}"
	run=(sudo -n)
fi

# A package's own service must not start: nothing listens unasked.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
	printf '#!/bin/sh\nexit 101\n' | "${run[@]}" tee $policy >/dev/null && "${run[@]}" chmod +x $policy
	trap '"${run[@]}" rm -f $policy' EXIT
fi
install() { "${run[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"; }
log=$(mktemp)
{ "${run[@]}" apt-get update && install; } >"$log" 2>&1 || { tail -5 "$log" >&2; fail "apt-get failed"; }
rm -f "$log"

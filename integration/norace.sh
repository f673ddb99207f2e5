#!/usr/bin/env bash
# Runs the tests that the race detector would distort or slow down tenfold: those of
# large inputs, of memory and of allocations. They are in files that begin with
# "//go:build !race". Arguments go to go test.
set -euo pipefail
cd "$(dirname "$0")/.."
mapfile -t files < <(grep -rlx --include='*_test.go' '//go:build !race' . | xargs grep -l '^func Test' | sort)
names=$(grep -hoE '^func Test\w+' "${files[@]}" | sed 's/^func //' | paste -sd '|')
mapfile -t packages < <(dirname "${files[@]}" | sort -u)
exec go test -vet=off "$@" -run "^($names)\$" "${packages[@]}"

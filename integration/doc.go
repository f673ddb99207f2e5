// Package integration tests Penstock from outside: the real binary, real
// sockets, real peers (HAProxy, nginx, curl, openssl), and the laws of the
// house that no compiler checks.
//
// setup.sh installs the peers from package registries. A peer that is missing
// is an error where CI=true and a loud skip elsewhere.
package integration

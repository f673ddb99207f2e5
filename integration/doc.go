// Package integration tests Penstock from outside, with the real binary, real
// sockets and real peers (HAProxy, nginx, curl, openssl, dnsmasq), and checks the
// project's conventions that no compiler checks.
//
// setup.sh installs the peers from package registries. A missing peer fails the
// test if CI=true and skips it otherwise.
package integration

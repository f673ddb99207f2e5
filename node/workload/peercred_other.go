//go:build !linux

package workload

import (
	"errors"
	"net"
)

// credentialsOf refuses everyone: who connects is known on Linux alone.
func credentialsOf(net.Conn) (credentials, error) {
	return credentials{}, errors.ErrUnsupported
}

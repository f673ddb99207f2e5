package session

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // the protocol's
	"crypto/sha256"
)

// nativePassword is the plugin of MariaDB's accounts unless they have another.
const nativePassword = "mysql_native_password"

// canAnswer reports whether scramble knows a plugin.
func canAnswer(plugin string) bool { return plugin == nativePassword || plugin == cachingSHA2 }

// scramble returns the answer to a salt that proves a password without giving it away:
// https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_connection_phase_authentication_methods.html
func scramble(plugin, password string, salt []byte) []byte {
	switch {
	case password == "":
		return nil
	case plugin == cachingSHA2:
		once := sha256.Sum256([]byte(password))
		twice := sha256.Sum256(once[:])
		mask := sha256.Sum256(append(bytes.Clone(twice[:]), salt...))
		return xor(once[:], mask[:])
	}
	once := sha1.Sum([]byte(password))                       //nolint:gosec // the protocol's
	twice := sha1.Sum(once[:])                               //nolint:gosec // the protocol's
	mask := sha1.Sum(append(bytes.Clone(salt), twice[:]...)) //nolint:gosec // the protocol's
	return xor(once[:], mask[:])
}

func xor(a, b []byte) []byte {
	out := make([]byte, len(a))
	for i := range a {
		out[i] = a[i] ^ b[i]
	}
	return out
}

// trimNUL takes off the NUL at the end of a salt.
func trimNUL(salt []byte) []byte { return bytes.TrimSuffix(salt, []byte{0}) }

package resource

import (
	"errors"
	"slices"
	"strings"
)

// ProtocolMySQL is the protocol of Listeners and Services that speak MySQL's protocol.
const ProtocolMySQL = "mysql"

// ListenerMySQL sets how clients of a mysql listener are served.
type ListenerMySQL struct {
	// RequireTLS refuses logins without TLS, with MySQL's error 3159, before any
	// password is asked for. It requires tls. Default false.
	RequireTLS bool `yaml:"requireTLS"`
	// Users maps user names to services; they precede hosts.
	Users []UserRule `yaml:"users"`
	// ServerVersion is the version that the listener sends in its greeting, as in
	// 8.0.11-TiDB-v8.5.0: three numbers, and at most 60 characters in all. Left out:
	// that of an endpoint, as it was last seen.
	ServerVersion string `yaml:"serverVersion"`
}

// IsZero reports whether no field is given.
func (m *ListenerMySQL) IsZero() bool {
	return !m.RequireTLS && len(m.Users) == 0 && m.ServerVersion == ""
}

// UserRule sends user names to a service.
type UserRule struct {
	// Names are user names as clients log in with them, case-sensitive. A "*" at the
	// end stands for any characters, or none. An exact name precedes all patterns,
	// and a longer pattern a shorter one. Required.
	Names []string `yaml:"names"`
	// Service is the destination. Required.
	Service string `yaml:"service"`
}

// UserPrefix returns what user names must begin with to match a pattern, or false if
// the pattern is a whole name.
func UserPrefix(pattern string) (string, bool) { return strings.CutSuffix(pattern, "*") }

// ServiceMySQL sets how the servers of a mysql service are used.
type ServiceMySQL struct {
	// RequireTLS uses tls for every connection to the servers. Without it, tls is used
	// where the client has TLS, too. It requires tls. Default false.
	RequireTLS bool `yaml:"requireTLS"`
	// Move says how a session moves to another server when its own drains, leaves or
	// is overloaded: states (with the session states of TiDB 6.5 or newer), reconnect (a
	// session of MariaDB 10.2 or newer that holds nothing, by a login with credentials),
	// or never. Default states.
	Move string `yaml:"move" default:"states" oneof:"states reconnect never"`
	// Credentials are the users whose sessions move with move: reconnect, at most 64.
	// The sessions of other users do not move. Required with reconnect, and not allowed
	// without it.
	Credentials []MySQLCredential `yaml:"credentials"`
	// MovesPerSecond bounds how many sessions of the service each node begins to move
	// in a second. Default 500, 1..10,000.
	MovesPerSecond int `yaml:"movesPerSecond" default:"500" range:"1..10000"`
	// Rebalance evens out how many sessions the servers have, with balancing.policy
	// leastConnections.
	Rebalance Rebalance `yaml:"rebalance"`
}

// Rebalance moves sessions from the servers that have many to those that have few. Each
// node compares the sessions that it has itself.
type Rebalance struct {
	// MovesPerSecond bounds how many sessions of the service each node begins to move
	// for this in a second; 0: none. Slowly, because a server that has just started
	// loads its statistics first. Default 10, 0..10,000.
	MovesPerSecond *int `yaml:"movesPerSecond" default:"10" range:"0..10000"`
	// Ratio is how many sessions a server may have in percent of those of another one
	// of the same priority and zone, each by its weight. Default 120, 101..1000.
	Ratio int `yaml:"ratio" default:"120" range:"101..1000"`
}

// IsZero reports whether no field is given.
func (m *ServiceMySQL) IsZero() bool {
	return !m.RequireTLS && m.Move == "" && len(m.Credentials) == 0 && m.MovesPerSecond == 0
}

// MySQLCredential is the password of a user.
type MySQLCredential struct {
	// User is the name with which clients log in, case-sensitive. Required.
	User string `yaml:"user"`
	// PasswordFile is a file with the user's password on each node, which reads it again
	// when it changes. A line break at its end does not belong to the password.
	// Required.
	PasswordFile string `yaml:"passwordFile"`

	// content is the password; nil: the file is not read. It is behind a pointer so that
	// printing the spec does not show it, and no Secret, since it is never stored: with
	// one, Services would be sealed.
	content *string
}

// Password returns the password of a user; false: there is none, or its file cannot be
// used.
func (m *ServiceMySQL) Password(user string) (string, bool) {
	for i := range m.Credentials {
		if c := &m.Credentials[i]; c.User == user && c.content != nil {
			return *c.content, true
		}
	}
	return "", false
}

// withPasswords returns a copy that has the content of the password files.
func (m *ServiceMySQL) withPasswords(content []string) (ServiceMySQL, error) {
	made := *m
	made.Credentials = slices.Clone(m.Credentials)
	for i, text := range content {
		text = strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r")
		if text == "" || strings.ContainsAny(text, "\x00\n\r") {
			return ServiceMySQL{}, errors.New("passwordFile of mysql.credentials must have one line, the password")
		}
		made.Credentials[i].content = &text
	}
	return made, nil
}

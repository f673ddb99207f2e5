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
	// Load reads the servers' CPU and memory usage, from the metrics that TiDB serves.
	// With balancing.policy leastConnections a busy server gets fewer new sessions, and
	// sessions move away from it; with random they only move. Other policies cannot
	// have it. Left out: the load does not count.
	Load *ServiceLoad `yaml:"load"`
}

// ServiceLoad is how the load of servers is read, and what it changes. Each node reads it,
// without TLS.
type ServiceLoad struct {
	// Path is where the metrics are. Default "/metrics".
	Path string `yaml:"path" default:"/metrics"`
	// Port is the port of the metrics, at each endpoint's IP address. Default 10080,
	// 1..65,535.
	Port int `yaml:"port" default:"10080" range:"1..65535"`
	// PortTag names a tag of endpoints whose value is that port, in place of port.
	// Default status_port, which an etcd provider with format tidb sets.
	PortTag string `yaml:"portTag" default:"status_port"`
	// Interval is the time between two readings of one server, 10 % shorter or longer at
	// random. What was read counts for three intervals. Default 5s, 1s to 5m.
	Interval Duration `yaml:"interval" default:"5s" range:"1s..5m"`
	// Timeout bounds one reading. Default 2s, 10ms to 1m.
	Timeout Duration `yaml:"timeout" default:"2s" range:"10ms..1m"`
	// CPU is about the share of a server's cores that is in use.
	CPU LoadCPU `yaml:"cpu"`
	// Memory is about the share of a server's memory limit that is in use.
	Memory LoadMemory `yaml:"memory"`
}

// LoadCPU says what the CPU usage of servers changes.
type LoadCPU struct {
	// Ignore leaves the CPU usage out. Default false.
	Ignore bool `yaml:"ignore"`
	// High is the usage, in percent, from which a server loses sessions to one of the
	// same priority and zone that has less to do. Default 50, 0..100.
	High *int `yaml:"high" default:"50" range:"0..100"`
	// Gap is by how many percentage points the usage of that one has to be lower.
	// Default 15, 5..100.
	Gap int `yaml:"gap" default:"15" range:"5..100"`
	// MovesPerSecond bounds how many sessions of the service each node begins to move
	// for this in a second; 0: none. Default 10, 0..10,000.
	MovesPerSecond *int `yaml:"movesPerSecond" default:"10" range:"0..10000"`
}

// LoadMemory says what the memory usage of servers changes.
type LoadMemory struct {
	// Ignore leaves the memory usage out. Default false.
	Ignore bool `yaml:"ignore"`
	// High is the usage, in percent, above which a server loses its sessions, within a
	// minute or so, to one whose usage is lower by 15 percentage points. A server whose
	// memory grows so fast that it is full within a minute loses them at once.
	// Default 75, 20..90.
	High int `yaml:"high" default:"75" range:"20..90"`
	// MovesPerSecond bounds how many sessions of the service each node begins to move
	// for this in a second; 0: none. Default 100, 0..10,000.
	MovesPerSecond *int `yaml:"movesPerSecond" default:"100" range:"0..10000"`
}

// PortOf returns the port of the metrics of an endpoint with these tags.
func (l *ServiceLoad) PortOf(tags map[string]string) uint16 {
	return portOf(l.PortTag, l.Port, tags)
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
	return !m.RequireTLS && m.Move == "" && len(m.Credentials) == 0 && m.MovesPerSecond == 0 && m.Load == nil
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

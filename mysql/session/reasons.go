package session

import "penstock/netio"

// The reasons with which a session ends its connection, besides those of netio.
const (
	// BadPacket: a packet of the client is not the protocol's.
	BadPacket netio.Reason = "mysql_bad_packet"
	// BadServerPacket: the same of the server.
	BadServerPacket netio.Reason = "mysql_bad_server_packet"
	// LoginTimeout: the login was not complete in time, the server's part included.
	LoginTimeout netio.Reason = "mysql_login_timeout"
	// LoginRefused: the server refused the login, or the client cannot be served (it
	// is too old, or TLS is required and it does not use it).
	LoginRefused netio.Reason = "mysql_login_refused"
	// RowsLost: the client asked for FOUND_ROWS() or ROW_COUNT() of a statement before
	// a move by reconnecting, which the new server does not know.
	RowsLost netio.Reason = "mysql_rows_lost"
)

// Reasons lists them, for counting by reason.
var Reasons = []netio.Reason{BadPacket, BadServerPacket, LoginTimeout, LoginRefused, RowsLost}

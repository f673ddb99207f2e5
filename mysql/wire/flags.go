package wire

import (
	"fmt"
	"math/bits"
	"strings"
)

// Capabilities are the flags by which client and server agree on the protocol's
// features: https://dev.mysql.com/doc/dev/mysql-server/latest/group__group__cs__capabilities__flags.html
type Capabilities uint32

// The capabilities, under the protocol's names (CLIENT_LONG_PASSWORD and so on).
const (
	// LongPassword is CLIENT_MYSQL to MariaDB: a peer that sets it has no
	// MariaDB extensions.
	LongPassword Capabilities = 1 << iota
	FoundRows
	LongFlag
	ConnectWithDB // the login names a database
	NoSchema
	Compress // the compressed protocol with zlib
	ODBC
	LocalFiles // LOAD DATA LOCAL INFILE
	IgnoreSpace
	Protocol41
	Interactive
	SSL
	IgnoreSigpipe
	Transactions
	Reserved
	SecureConnection // the authentication data has a length of one byte
	MultiStatements
	MultiResults
	PSMultiResults
	PluginAuth // the login names a plugin
	ConnectAttrs
	PluginAuthLenencClientData // the authentication data has a length-encoded length
	CanHandleExpiredPasswords
	SessionTrack // OK packets tell changes of the session
	DeprecateEOF // rows end with OK instead of EOF
	OptionalResultsetMetadata
	ZstdCompressionAlgorithm // the compressed protocol with zstd
	QueryAttributes
	MultiFactorAuthentication
	CapabilityExtension
	SSLVerifyServerCert
	RememberOptions
)

var capabilityNames = [32]string{
	"LONG_PASSWORD", "FOUND_ROWS", "LONG_FLAG", "CONNECT_WITH_DB", "NO_SCHEMA", "COMPRESS", "ODBC", "LOCAL_FILES",
	"IGNORE_SPACE", "PROTOCOL_41", "INTERACTIVE", "SSL", "IGNORE_SIGPIPE", "TRANSACTIONS", "RESERVED", "SECURE_CONNECTION",
	"MULTI_STATEMENTS", "MULTI_RESULTS", "PS_MULTI_RESULTS", "PLUGIN_AUTH", "CONNECT_ATTRS", "PLUGIN_AUTH_LENENC_CLIENT_DATA",
	"CAN_HANDLE_EXPIRED_PASSWORDS", "SESSION_TRACK", "DEPRECATE_EOF", "OPTIONAL_RESULTSET_METADATA",
	"ZSTD_COMPRESSION_ALGORITHM", "QUERY_ATTRIBUTES", "MULTI_FACTOR_AUTHENTICATION", "CAPABILITY_EXTENSION",
	"SSL_VERIFY_SERVER_CERT", "REMEMBER_OPTIONS",
}

// String returns the names of the set flags, without the prefix CLIENT_.
func (c Capabilities) String() string { return flagNames(uint32(c), capabilityNames[:]) }

// Status are the flags of a session in OK and EOF packets:
// https://dev.mysql.com/doc/dev/mysql-server/latest/mysql__com_8h.html
type Status uint16

// The status flags, under the protocol's names (SERVER_STATUS_IN_TRANS and so on).
const (
	InTransaction       Status = 0x0001
	Autocommit          Status = 0x0002
	MoreResults         Status = 0x0008 // another result follows
	NoGoodIndexUsed     Status = 0x0010
	NoIndexUsed         Status = 0x0020
	CursorExists        Status = 0x0040 // rows are fetched with ComStmtFetch
	LastRowSent         Status = 0x0080 // the cursor has no more rows
	DatabaseDropped     Status = 0x0100
	NoBackslashEscapes  Status = 0x0200
	MetadataChanged     Status = 0x0400
	QueryWasSlow        Status = 0x0800
	PSOutParams         Status = 0x1000
	InTransReadonly     Status = 0x2000
	SessionStateChanged Status = 0x4000 // the OK packet tells changes of the session
	AnsiQuotes          Status = 0x8000 // MariaDB
)

var statusNames = [16]string{
	"IN_TRANS", "AUTOCOMMIT", "0x4", "MORE_RESULTS_EXISTS", "NO_GOOD_INDEX_USED", "NO_INDEX_USED", "CURSOR_EXISTS",
	"LAST_ROW_SENT", "DB_DROPPED", "NO_BACKSLASH_ESCAPES", "METADATA_CHANGED", "QUERY_WAS_SLOW", "PS_OUT_PARAMS",
	"IN_TRANS_READONLY", "SESSION_STATE_CHANGED", "ANSI_QUOTES",
}

// String returns the names of the set flags, without the prefix SERVER_STATUS_.
func (s Status) String() string { return flagNames(uint32(s), statusNames[:]) }

// flagNames joins the names of the set bits of flags with "|".
func flagNames(flags uint32, names []string) string {
	var set []string
	for ; flags != 0; flags &= flags - 1 {
		set = append(set, names[bits.TrailingZeros32(flags)])
	}
	return strings.Join(set, "|")
}

// Command is the first byte of a client's payload in the command phase.
type Command byte

// The commands, under the protocol's names (COM_SLEEP and so on).
const (
	ComSleep            Command = 0x00
	ComQuit             Command = 0x01
	ComInitDB           Command = 0x02
	ComQuery            Command = 0x03
	ComFieldList        Command = 0x04
	ComCreateDB         Command = 0x05
	ComDropDB           Command = 0x06
	ComRefresh          Command = 0x07
	ComShutdown         Command = 0x08
	ComStatistics       Command = 0x09
	ComProcessInfo      Command = 0x0a
	ComConnect          Command = 0x0b
	ComProcessKill      Command = 0x0c
	ComDebug            Command = 0x0d
	ComPing             Command = 0x0e
	ComTime             Command = 0x0f
	ComDelayedInsert    Command = 0x10
	ComChangeUser       Command = 0x11
	ComBinlogDump       Command = 0x12
	ComTableDump        Command = 0x13
	ComConnectOut       Command = 0x14
	ComRegisterSlave    Command = 0x15
	ComStmtPrepare      Command = 0x16
	ComStmtExecute      Command = 0x17
	ComStmtSendLongData Command = 0x18
	ComStmtClose        Command = 0x19
	ComStmtReset        Command = 0x1a
	ComSetOption        Command = 0x1b
	ComStmtFetch        Command = 0x1c
	ComDaemon           Command = 0x1d
	ComBinlogDumpGTID   Command = 0x1e
	ComResetConnection  Command = 0x1f
	ComClone            Command = 0x20
	ComStmtBulkExecute  Command = 0xfa // MariaDB
)

var commandNames = [...]string{
	"SLEEP", "QUIT", "INIT_DB", "QUERY", "FIELD_LIST", "CREATE_DB", "DROP_DB", "REFRESH", "SHUTDOWN", "STATISTICS",
	"PROCESS_INFO", "CONNECT", "PROCESS_KILL", "DEBUG", "PING", "TIME", "DELAYED_INSERT", "CHANGE_USER", "BINLOG_DUMP",
	"TABLE_DUMP", "CONNECT_OUT", "REGISTER_SLAVE", "STMT_PREPARE", "STMT_EXECUTE", "STMT_SEND_LONG_DATA", "STMT_CLOSE",
	"STMT_RESET", "SET_OPTION", "STMT_FETCH", "DAEMON", "BINLOG_DUMP_GTID", "RESET_CONNECTION", "CLONE",
}

// String returns the protocol's name, such as COM_QUERY.
func (c Command) String() string {
	switch {
	case int(c) < len(commandNames):
		return "COM_" + commandNames[c]
	case c == ComStmtBulkExecute:
		return "COM_STMT_BULK_EXECUTE"
	}
	return fmt.Sprintf("COM_0x%02x", byte(c))
}

package session

import "strings"

// class says what a word means to statement.
type class uint8

const (
	plain class = iota // a name, a number, or a word that is not known

	// First words of statements, and words of which a second one decides.
	simpleWord // a statement that leaves nothing but what its functions leave
	showWord
	beginWord
	workWord
	startWord
	transactionWord
	releaseWord
	createWord
	lockWord
	prepareWord
	handlerWord

	// Of SET.
	scopeWord  // SESSION
	globalWord // of all sessions
	characterWord
	roleWord
	otherSetWord

	// Words that have a meaning wherever they stand.
	calcRows
	userLock
	lastGTID
	sequenceWord
	nextWord
	valueWord
	temporaryWord
	connectionID
	afterParenthesis // may be followed by "(" behind ")"

	// Reserved words, which no stored function has as its name.
	reserved
	insertWord
	replaceWord
	selectWord
	withWord
	valuesWord
	tableWord
	setWord

	// Functions of the server. It prefers them to stored functions of the same name,
	// some of them only where "(" follows immediately.
	function
	foundRows
	rowCount
)

func (c class) isKeyword() bool  { return c >= reserved && c < function }
func (c class) isFunction() bool { return c >= function }

// words are the words that mean something, in upper case. Functions are those that
// MariaDB has had since 10.2: a newer one may be a stored function on an older server.
// A function that keeps something in the session is not among them.
var words = table(map[class]string{
	simpleWord: "UPDATE DELETE DO USE COMMIT ROLLBACK SAVEPOINT KILL TRUNCATE DROP EXPLAIN DESCRIBE DESC", showWord: "SHOW",
	beginWord: "BEGIN", workWord: "WORK", startWord: "START", transactionWord: "TRANSACTION", releaseWord: "RELEASE",
	createWord: "CREATE", lockWord: "LOCK FLUSH BACKUP", prepareWord: "PREPARE EXECUTE", handlerWord: "HANDLER",

	scopeWord: "SESSION LOCAL", globalWord: "GLOBAL PERSIST PERSIST_ONLY", characterWord: "CHARACTER CHARSET NAMES",
	roleWord: "ROLE", otherSetWord: "DEFAULT PASSWORD STATEMENT RESOURCE",

	calcRows: "SQL_CALC_FOUND_ROWS", userLock: "GET_LOCK RELEASE_LOCK RELEASE_ALL_LOCKS", lastGTID: "LAST_GTID",
	sequenceWord: "NEXTVAL SETVAL LASTVAL CURRVAL", nextWord: "NEXT PREVIOUS", valueWord: "VALUE", temporaryWord: "TEMPORARY",
	connectionID: "CONNECTION_ID PSEUDO_THREAD_ID", afterParenthesis: "AGAINST OVER",

	reserved: `ALL AND AS BETWEEN BY CASE CROSS DISTINCT DISTINCTROW DIV ELSE EXISTS FOR FROM HAVING IN INDEX
		INTERVAL INTO IS JOIN KEY LIKE LIMIT MATCH MOD NOT ON OR ORDER PARTITION REGEXP RLIKE RETURNING STRAIGHT_JOIN THEN
		UNION USING WHEN WHERE XOR BINARY CONVERT IF LEFT RIGHT CHAR DECIMAL VARCHAR REPEAT`,
	insertWord: "INSERT", replaceWord: "REPLACE", selectWord: "SELECT", withWord: "WITH", valuesWord: "VALUES", tableWord: "TABLE",
	setWord: "SET",

	function: `ABS ACOS ADDDATE ADDTIME AES_DECRYPT AES_ENCRYPT ASCII ASIN ATAN ATAN2 AVG BENCHMARK BIN BIT_AND BIT_COUNT
		BIT_LENGTH BIT_OR BIT_XOR CAST CEIL CEILING CHAR_LENGTH CHARACTER_LENGTH COALESCE COERCIBILITY COLLATION
		COMPRESS CONCAT CONCAT_WS CONV CONVERT_TZ COS COT COUNT CRC32 CURDATE CURRENT_DATE CURRENT_ROLE CURRENT_TIME
		CURRENT_TIMESTAMP CURRENT_USER CURTIME DATABASE DATE DATE_ADD DATE_FORMAT DATE_SUB DATEDIFF DAY DAYNAME DAYOFMONTH
		DAYOFWEEK DAYOFYEAR DEGREES DENSE_RANK ELT EXP EXPORT_SET EXTRACT EXTRACTVALUE FIELD FIND_IN_SET FIRST_VALUE FLOOR
		FORMAT FROM_BASE64 FROM_DAYS FROM_UNIXTIME GREATEST GROUP_CONCAT HEX HOUR IFNULL INET_ATON INET_NTOA INET6_ATON
		INET6_NTOA INSTR ISNULL JSON_ARRAY JSON_ARRAY_APPEND JSON_ARRAY_INSERT JSON_CONTAINS JSON_CONTAINS_PATH JSON_DEPTH
		JSON_EXISTS JSON_EXTRACT JSON_INSERT JSON_KEYS JSON_LENGTH JSON_MERGE JSON_OBJECT JSON_QUERY JSON_QUOTE JSON_REMOVE JSON_REPLACE JSON_SEARCH
		JSON_SET JSON_TYPE JSON_UNQUOTE JSON_VALID JSON_VALUE LAG LAST_DAY LAST_INSERT_ID LAST_VALUE LCASE LEAD LEAST LENGTH LN LOCALTIME
		LOCALTIMESTAMP LOCATE LOG LOG10 LOG2 LOWER LPAD LTRIM MAKE_SET MAKEDATE MAKETIME MAX MD5 MICROSECOND MID MIN MINUTE
		MONTH MONTHNAME NOW NTH_VALUE NTILE NULLIF OCT OCTET_LENGTH ORD PERCENT_RANK PERIOD_ADD PERIOD_DIFF PI POSITION POW
		POWER QUARTER QUOTE RADIANS RAND RANK REGEXP_INSTR REGEXP_REPLACE REGEXP_SUBSTR REVERSE ROUND ROW_NUMBER RPAD RTRIM
		SCHEMA SEC_TO_TIME SECOND SESSION_USER SHA SHA1 SHA2 SIGN SIN SLEEP SOUNDEX SPACE SQRT STD STDDEV STDDEV_POP
		STDDEV_SAMP STR_TO_DATE STRCMP SUBDATE SUBSTR SUBSTRING SUBSTRING_INDEX SUBTIME SUM SYSDATE SYSTEM_USER TAN TIME
		TIME_FORMAT TIME_TO_SEC TIMEDIFF TIMESTAMP TIMESTAMPADD TIMESTAMPDIFF TO_BASE64 TO_DAYS TO_SECONDS TRIM UCASE
		UNCOMPRESS UNHEX UNIX_TIMESTAMP UPDATEXML UPPER USER UTC_DATE UTC_TIME UTC_TIMESTAMP UUID UUID_SHORT VAR_POP VAR_SAMP
		VARIANCE VERSION WEEK WEEKDAY WEEKOFYEAR YEAR YEARWEEK`,
	foundRows: "FOUND_ROWS", rowCount: "ROW_COUNT",
})

func table(all map[class]string) map[string]class {
	m := map[string]class{}
	for c, list := range all {
		for _, word := range strings.Fields(list) {
			if m[word] != plain {
				panic("two meanings of " + word)
			}
			m[word] = c
		}
	}
	return m
}

func set(list string) map[string]bool {
	m := map[string]bool{}
	for _, word := range strings.Fields(list) {
		m[word] = true
	}
	return m
}

var (
	// safeCharsets are character sets in which every byte below 0x80 is a character of
	// its own.
	safeCharsets = set("UTF8 UTF8MB3 UTF8MB4 LATIN1 ASCII BINARY")
	// perConnection are variables that differ from one connection or server to the
	// next by themselves.
	perConnection = set(`TIMESTAMP RAND_SEED1 RAND_SEED2 PSEUDO_THREAD_ID ERROR_COUNT WARNING_COUNT IDENTITY LAST_GTID
		SERVER_ID GTID_DOMAIN_ID`)
	// isolation are the variables of SET TRANSACTION.
	isolation = set("TX_ISOLATION TX_READ_ONLY TRANSACTION_ISOLATION TRANSACTION_READ_ONLY")
	// restored are variables that a session may set in other ways than by name.
	restored = set(`CHARACTER_SET_CLIENT CHARACTER_SET_CONNECTION CHARACTER_SET_RESULTS COLLATION_CONNECTION LAST_INSERT_ID
		TX_ISOLATION TX_READ_ONLY TRANSACTION_ISOLATION TRANSACTION_READ_ONLY AUTOCOMMIT`)
)

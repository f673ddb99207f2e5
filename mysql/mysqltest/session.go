package mysqltest

import (
	"encoding/json"
	"fmt"
	"maps"

	"penstock/mysql/wire"
)

// session is the state that a connection has beyond its socket. What SHOW
// SESSION_STATES carries is in states.
type session struct {
	user         string
	db           string
	vars         map[string]any // system variables that differ from the default
	userVars     map[string]any
	stmts        map[uint32]*stmt
	lastStmt     uint32
	lastInsertID uint64
	multi        bool // multi-statements, by COM_SET_OPTION

	// What keeps a session from moving.
	inTx       bool
	adds       map[string]int64 // of the transaction
	locks      map[string]bool  // GET_LOCK
	tableLocks bool
	temporary  map[string]bool // local temporary tables

	warnings []string
}

// defaults are the system variables.
var defaults = map[string]any{
	"autocommit": int64(1), "sql_mode": "ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES", "time_zone": "SYSTEM", "system_time_zone": "UTC",
	"character_set_client": "utf8mb4", "character_set_connection": "utf8mb4", "character_set_results": "utf8mb4",
	"character_set_server": "utf8mb4", "collation_connection": "utf8mb4_bin", "collation_server": "utf8mb4_bin",
	"max_allowed_packet": int64(64 << 20), "net_write_timeout": int64(60), "wait_timeout": int64(28800),
	"interactive_timeout": int64(28800), "tx_isolation": "REPEATABLE-READ", "transaction_isolation": "REPEATABLE-READ",
	"tx_read_only": int64(0), "transaction_read_only": int64(0), "lower_case_table_names": int64(2), "sql_select_limit": int64(1 << 62),
	"init_connect": "", "license": "Apache License 2.0", "version_comment": "mysqltest", "auto_increment_increment": int64(1),
	"performance_schema": int64(0), "query_cache_size": int64(0), "query_cache_type": "OFF", "foreign_key_checks": int64(1),
	"unique_checks": int64(1),
}

// reset ends everything that the session holds, as COM_RESET_CONNECTION does. The
// user and the database stay.
func (s *session) reset() {
	for _, st := range s.stmts {
		st.closeCursor()
	}
	*s = session{
		user: s.user, db: s.db, multi: s.multi, vars: map[string]any{}, userVars: map[string]any{}, stmts: map[uint32]*stmt{},
		adds: map[string]int64{}, locks: map[string]bool{}, temporary: map[string]bool{},
	}
}

// variable returns a system variable; known is false if there is none.
func (s *session) variable(name string) (v any, known bool) {
	if v, known = s.vars[name]; !known {
		v, known = defaults[name]
	}
	return v, known
}

func (s *session) autocommit() bool {
	v, _ := s.variable("autocommit")
	return v != int64(0)
}

// status returns the status flags.
func (s *session) status() wire.Status {
	var flags wire.Status
	if s.inTx {
		flags |= wire.InTransaction
	}
	if s.autocommit() {
		flags |= wire.Autocommit
	}
	return flags
}

// add adds to a counter, in the transaction or at once.
func (c *conn) add(name string, n int64) {
	if !c.inTx && c.autocommit() {
		c.server.config.Store.commit(map[string]int64{name: n})
		return
	}
	c.inTx = true
	c.adds[name] += n
}

// commit ends the transaction, if there is one.
func (c *conn) commit() {
	c.server.config.Store.commit(c.adds)
	c.rollback()
}

func (c *conn) rollback() {
	c.inTx = false
	clear(c.adds)
}

// states are the session states, with the names of TiDB's.
type states struct {
	UserVars     map[string]any         `json:"user-var-values,omitempty"`
	SystemVars   map[string]any         `json:"sys-vars,omitempty"`
	Statements   map[uint32]stateOfStmt `json:"prepared-stmts,omitempty"`
	LastStmt     uint32                 `json:"prepared-stmt-id,omitempty"`
	Status       wire.Status            `json:"status,omitempty"`
	Database     string                 `json:"current-db,omitempty"`
	LastInsertID uint64                 `json:"last-insert-id,omitempty"`
}

type stateOfStmt struct {
	Text  string `json:"text"`
	DB    string `json:"db,omitempty"`
	Types []byte `json:"types,omitempty"`
}

// stays returns why the session cannot move; "" if it can.
func (s *session) stays() string {
	switch {
	case s.inTx:
		return "session has an active transaction"
	case len(s.locks) > 0:
		return "session has advisory locks"
	case s.tableLocks:
		return "session has locked tables"
	case len(s.temporary) > 0:
		return "session has local temporary tables"
	}
	for _, st := range s.stmts {
		switch {
		case st.cursor != nil:
			return "prepared statements have open cursors"
		case len(st.long) > 0:
			return "prepared statements have pending long data"
		}
	}
	return ""
}

func errStays(why string) error {
	return wire.Error{Code: 8146, State: "HY000", Message: "cannot migrate the current session: " + why}
}

// showStates answers SHOW SESSION_STATES.
func (c *conn) showStates(payload []byte) (*result, error) {
	if why := c.stays(); why != "" {
		return nil, errStays(why)
	}
	a, replaced, err := c.step(Event{Step: OnShowStates, Command: wire.ComQuery, Payload: payload})
	if replaced || err != nil {
		return &result{answered: true}, err
	}
	answer := wire.States{Token: c.server.config.Signer.Token(c.user, c.server.config.Now())}
	if a.States != nil {
		answer = *a.States
	} else {
		answer.JSON = c.encodeStates()
	}
	return table([]string{"Session_states", "Session_token"}, []any{answer.JSON, string(answer.Token)}), nil
}

func (s *session) encodeStates() string {
	all := states{
		UserVars: s.userVars, SystemVars: s.vars, Statements: map[uint32]stateOfStmt{}, LastStmt: s.lastStmt, Status: s.status(),
		Database: s.db, LastInsertID: s.lastInsertID,
	}
	for id, st := range s.stmts {
		all.Statements[id] = stateOfStmt{Text: st.text, DB: st.db, Types: st.types}
	}
	text, err := json.Marshal(all)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// setStates executes SET SESSION_STATES.
func (c *conn) setStates(text string, payload []byte) (*result, error) {
	if _, replaced, err := c.step(Event{Step: OnSetStates, Command: wire.ComQuery, Payload: payload}); replaced || err != nil {
		return &result{answered: true}, err
	}
	if why := c.stays(); why != "" {
		return nil, errStays(why)
	}
	var all states
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return nil, wire.Error{Code: 1105, State: "HY000", Message: fmt.Sprintf("session states: %v", err)}
	}
	for id, st := range all.Statements {
		restored, err := prepare(id, st.Text, st.DB)
		if err != nil {
			return nil, err
		}
		restored.types = st.Types
		c.stmts[id] = restored
	}
	maps.Copy(c.userVars, normalized(all.UserVars))
	maps.Copy(c.vars, normalized(all.SystemVars))
	c.lastStmt, c.db, c.lastInsertID = all.LastStmt, all.Database, all.LastInsertID
	return &result{}, nil
}

// normalized makes integers of JSON's numbers where they are integers.
func normalized(vars map[string]any) map[string]any {
	for name, v := range vars {
		if f, ok := v.(float64); ok && f == float64(int64(f)) {
			vars[name] = int64(f)
		}
	}
	return vars
}

package mysqltest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"penstock/mysql/wire"
)

// The language:
//
//	SELECT value [AS name], ...            literals, @user, @@system variables, ?, +, -, functions (see functions)
//	SELECT SLEEP('name')                   until the test calls Release("name")
//	SELECT * FROM rows(n, size)            n rows: id, and data of size bytes
//	SELECT name, value FROM counter [WHERE name = value] [FOR UPDATE]
//	INSERT INTO counter VALUES (name, n)   adds n, with a new insert ID
//	UPDATE counter SET value = value + n WHERE name = value
//	LOAD DATA LOCAL INFILE 'file' INTO TABLE name   adds the number of lines to the counter name
//	BEGIN, START TRANSACTION, COMMIT, ROLLBACK
//	SET [SESSION|GLOBAL] name = value, @user = value, ...    SET NAMES name    SET TRANSACTION ...
//	USE name, LOCK TABLES ..., UNLOCK TABLES, CREATE TEMPORARY TABLE name, DROP TABLE name, DO value
//	WARN 'message', SHOW WARNINGS, ERROR code 'state' 'message'
//	SHOW SESSION_STATES, SET SESSION_STATES 'json'

// execute executes the next statement.
func (c *conn) execute(p *parser, args []any) (*result, error) {
	e := &env{c: c, args: args}
	from := p.peek().start
	verb, err := p.name()
	if err != nil {
		return nil, err
	}
	var r *result
	switch verb {
	case "select":
		r, err = c.selectRows(p, e)
	case "set":
		r, err = c.set(p, e, from)
	case "show":
		r, err = c.show(p, from)
	case "insert":
		r, err = c.insert(p, e)
	case "update":
		r, err = c.update(p, e)
	case "load":
		r, err = c.load(p)
	default:
		r, err = c.simple(verb, p, e)
	}
	if err == nil && !p.ended() {
		err = p.fault()
	}
	return r, err
}

// simple executes statements that have no result but OK.
func (c *conn) simple(verb string, p *parser, e *env) (*result, error) {
	r := &result{}
	switch verb {
	case "begin", "start":
		if verb == "start" && !p.accept("transaction") {
			return nil, p.fault()
		}
		p.skip()
		c.commit()
		c.inTx = true
	case "commit":
		p.skip() // AND NO CHAIN and the like
		c.commit()
	case "rollback":
		c.rollback()
	case "use":
		name, err := p.name()
		c.db = name
		return r, err
	case "lock", "unlock":
		if !p.accept("tables") {
			return nil, p.fault()
		}
		p.skip()
		c.tableLocks = verb == "lock"
	case "create":
		if err := p.expect("temporary", "table"); err != nil {
			return nil, err
		}
		name, err := p.name()
		p.skip()
		c.temporary[name] = true
		return r, err
	case "drop":
		p.accept("temporary")
		if err := p.expect("table"); err != nil {
			return nil, err
		}
		name, err := p.name()
		delete(c.temporary, name)
		return r, err
	case "do":
		x, err := p.expr()
		if err != nil {
			return nil, err
		}
		_, err = x(e)
		return r, err
	case "warn":
		c.warnings = append(c.warnings, p.next().s)
	case "error":
		return nil, c.fail(p)
	default:
		p.at--
		return nil, p.fault()
	}
	return r, nil
}

// fail parses ERROR code 'state' 'message' and returns the error.
func (c *conn) fail(p *parser) error {
	code, err := p.expr()
	if err != nil {
		return err
	}
	n, err := intOf(code, &env{c: c})
	if err != nil {
		return err
	}
	return wire.Error{Code: uint16(n), State: p.next().s, Message: p.next().s}
}

func (c *conn) show(p *parser, from int) (*result, error) {
	if p.accept("session_states") && !c.server.config.NoStates {
		return c.showStates([]byte(p.src[from:]))
	}
	if !p.accept("warnings") {
		return nil, p.fault()
	}
	var rows [][]any
	for _, w := range c.warnings {
		rows = append(rows, []any{"Warning", int64(1105), w})
	}
	return table([]string{"Level", "Code", "Message"}, rows...), nil
}

// set executes SET, of variables and of session states.
func (c *conn) set(p *parser, e *env, from int) (*result, error) {
	switch {
	case p.peek().s == "session_states" && !c.server.config.NoStates:
		p.next()
		if p.peek().kind != text {
			return nil, p.fault()
		}
		return c.setStates(p.next().s, []byte(p.src[from:]))
	case p.accept("names"):
		name := p.next().s
		for _, v := range []string{"character_set_client", "character_set_connection", "character_set_results"} {
			c.vars[v] = name
		}
		p.skip()
		return &result{}, nil
	case p.accept("transaction"), p.accept("session", "transaction"):
		p.skip()
		return &result{}, nil
	}
	for {
		if !p.accept("session") && !p.accept("global") {
			p.accept("local")
		}
		to := p.next()
		if to.kind != word && to.kind != userVar && to.kind != sysVar {
			return nil, p.fault()
		}
		p.accept(":")
		if err := p.expect("="); err != nil {
			return nil, err
		}
		if p.peek().kind == word && p.tokens[p.at+1].s != "(" { // SET sql_mode = ansi
			p.tokens[p.at].kind = text
		}
		x, err := p.expr()
		if err != nil {
			return nil, err
		}
		v, err := x(e)
		if err != nil {
			return nil, err
		}
		if err := c.assign(to, v); err != nil {
			return nil, err
		}
		if !p.accept(",") {
			return &result{}, nil
		}
	}
}

// assign sets a variable.
func (c *conn) assign(to tok, v any) error {
	if to.kind == userVar {
		c.userVars[to.s] = v
		return nil
	}
	name := to.s[strings.LastIndexByte(to.s, '.')+1:]
	if _, known := c.variable(name); !known {
		return wire.Error{Code: 1193, State: "HY000", Message: fmt.Sprintf("Unknown system variable '%s'", name)}
	}
	if b, ok := map[any]int64{"on": 1, "off": 0, "true": 1, "false": 0}[v]; ok && name == "autocommit" {
		v = b
	}
	c.vars[name] = v
	if name == "autocommit" && c.autocommit() {
		c.commit()
	}
	return nil
}

func (c *conn) insert(p *parser, e *env) (*result, error) {
	if err := p.expect("into", "counter", "values", "("); err != nil {
		return nil, err
	}
	name, err := p.expr()
	if err == nil {
		err = p.expect(",")
	}
	if err != nil {
		return nil, err
	}
	n, err := p.expr()
	if err == nil {
		err = p.expect(")")
	}
	if err != nil {
		return nil, err
	}
	if err := c.addTo(name, n, e); err != nil {
		return nil, err
	}
	c.lastInsertID = c.server.config.Store.insertID()
	return &result{ok: wire.OK{AffectedRows: 1, LastInsertID: c.lastInsertID}}, nil
}

func (c *conn) addTo(name, n expr, e *env) error {
	key, err := textIn(name, e)
	if err != nil {
		return err
	}
	by, err := intOf(n, e)
	if err == nil {
		c.add(key, by)
	}
	return err
}

func (c *conn) update(p *parser, e *env) (*result, error) {
	if err := p.expect("counter", "set", "value", "=", "value", "+"); err != nil {
		return nil, err
	}
	n, err := p.term()
	if err == nil {
		err = p.expect("where", "name", "=")
	}
	if err != nil {
		return nil, err
	}
	name, err := p.expr()
	if err != nil {
		return nil, err
	}
	return &result{ok: wire.OK{AffectedRows: 1, Info: "Rows matched: 1  Changed: 1  Warnings: 0"}}, c.addTo(name, n, e)
}

func (c *conn) load(p *parser) (*result, error) {
	if err := p.expect("data", "local", "infile"); err != nil {
		return nil, err
	}
	file := p.next().s
	if err := p.expect("into", "table"); err != nil {
		return nil, err
	}
	name, err := p.name()
	p.skip()
	return &result{infile: file, ok: wire.OK{Info: name}}, err
}

// columnsOf are the tables and their columns.
var columnsOf = map[string][]string{"counter": {"name", "value"}, "rows": {"id", "data"}}

// item is an element of a SELECT's list.
type item struct {
	name string
	x    expr
}

// selectList parses the list of a SELECT; star is an item without an expression.
func (p *parser) selectList() ([]item, error) {
	var list []item
	for {
		start := p.peek().start
		if p.accept("*") {
			list = append(list, item{})
		} else {
			x, err := p.expr()
			if err != nil {
				return nil, err
			}
			one := item{strings.TrimSpace(p.src[start:p.tokens[p.at-1].end]), x}
			if p.accept("as") {
				one.name = p.next().s
			}
			list = append(list, one)
		}
		if !p.accept(",") {
			return list, nil
		}
	}
}

// expand replaces stars with the columns of a table.
func expand(list []item, from string) []item {
	var all []item
	for _, one := range list {
		if one.x != nil {
			all = append(all, one)
			continue
		}
		for _, name := range columnsOf[from] {
			all = append(all, item{name, func(e *env) (any, error) { return e.row[name], nil }})
		}
	}
	return all
}

// selected returns the columns of the rows that the first statement leads to; nil
// if it has none.
func (p *parser) selected() []string {
	walk := *p
	if !walk.accept("select") {
		return nil
	}
	list, err := walk.selectList()
	if err != nil {
		return nil
	}
	from := ""
	if walk.accept("from") {
		from = walk.next().s
	}
	var columns []string
	for _, one := range expand(list, from) {
		columns = append(columns, one.name)
	}
	return columns
}

func (c *conn) selectRows(p *parser, e *env) (*result, error) {
	list, err := p.selectList()
	if err != nil {
		return nil, err
	}
	var source func() map[string]any
	from := ""
	if p.accept("from") {
		if from, err = p.name(); err != nil {
			return nil, err
		}
		if source, err = c.scan(from, p, e); err != nil {
			return nil, err
		}
	} else {
		once := true
		source = func() map[string]any {
			if !once {
				return nil
			}
			once = false
			return map[string]any{}
		}
	}
	return rowsOf(expand(list, from), source, e)
}

// rowsOf returns the rows that a list makes of a source's. The first is computed
// at once, so that errors show, and decides on the types.
func rowsOf(list []item, source func() map[string]any, e *env) (*result, error) {
	compute := func() ([]any, error) {
		row := source()
		if row == nil {
			return nil, nil
		}
		in := &env{c: e.c, args: e.args, row: row}
		values := make([]any, len(list))
		for i, one := range list {
			var err error
			if values[i], err = one.x(in); err != nil {
				return nil, err
			}
		}
		return values, nil
	}
	columns := make([]string, len(list))
	for i, one := range list {
		columns[i] = one.name
	}
	first, err := compute()
	if err != nil {
		return nil, err
	}
	if first == nil {
		return table(columns), nil
	}
	r := table(columns, first)
	one := r.next
	r.next = func() []any {
		if row := one(); row != nil {
			return row
		}
		row, err := compute()
		if err != nil {
			return nil
		}
		return row
	}
	return r, nil
}

// scan parses what follows FROM, and returns the rows one after another.
func (c *conn) scan(from string, p *parser, e *env) (func() map[string]any, error) {
	switch from {
	case "rows":
		return p.generated(e)
	case "counter":
	default:
		return nil, wire.Error{Code: 1146, State: "42S02", Message: fmt.Sprintf("Table '%s' doesn't exist", from)}
	}
	values := c.server.config.Store.Counters()
	for name, n := range c.adds {
		values[name] += n
	}
	keys := slices.Sorted(maps.Keys(values))
	if p.accept("where", "name", "=") {
		x, err := p.expr()
		if err != nil {
			return nil, err
		}
		only, err := textIn(x, e)
		if err != nil {
			return nil, err
		}
		keys = slices.DeleteFunc(keys, func(name string) bool { return name != only })
	}
	p.accept("for", "update")
	if !c.autocommit() {
		c.inTx = true
	}
	return func() map[string]any {
		if len(keys) == 0 {
			return nil
		}
		name := keys[0]
		keys = keys[1:]
		return map[string]any{"name": name, "value": values[name]}
	}, nil
}

// generated parses the arguments of rows(n, size).
func (p *parser) generated(e *env) (func() map[string]any, error) {
	var of [2]int64
	for i, before := range []string{"(", ","} {
		if err := p.expect(before); err != nil {
			return nil, err
		}
		x, err := p.expr()
		if err != nil {
			return nil, err
		}
		if of[i], err = intOf(x, e); err != nil {
			return nil, err
		}
	}
	if of[1] < 0 || of[1] > maxPacket {
		return nil, p.fault()
	}
	id, data := int64(0), strings.Repeat("0123456789", int(of[1]/10)+1)[:of[1]]
	return func() map[string]any {
		if id == of[0] {
			return nil
		}
		id++
		return map[string]any{"id": id, "data": data}
	}, p.expect(")")
}

package mysqltest

import (
	"fmt"
	"strconv"
	"strings"

	"penstock/mysql/wire"
)

// env is what an expression is evaluated in.
type env struct {
	c    *conn
	args []any          // of parameters
	row  map[string]any // columns
}

// expr computes a value: nil, int64, float64 or string.
type expr func(e *env) (any, error)

func constant(v any) expr { return func(*env) (any, error) { return v, nil } }

// expr parses a term, or a sum of terms.
func (p *parser) expr() (expr, error) {
	left, err := p.term()
	for err == nil && (p.peek().s == "+" || p.peek().s == "-") && p.peek().kind == symbol {
		sign := int64(1)
		if p.next().s == "-" {
			sign = -1
		}
		a := left
		var b expr
		if b, err = p.term(); err != nil {
			return nil, err
		}
		left = func(e *env) (any, error) {
			x, err := intOf(a, e)
			if err != nil {
				return nil, err
			}
			y, err := intOf(b, e)
			return x + sign*y, err
		}
	}
	return left, err
}

// intOf evaluates an expression that must be an integer.
func intOf(x expr, e *env) (int64, error) {
	v, err := x(e)
	if err != nil {
		return 0, err
	}
	switch v := v.(type) {
	case int64:
		return v, nil
	case string:
		if n, err := strconv.ParseInt(v, 10, 64); err == nil {
			return n, nil
		}
	}
	return 0, wire.Error{Code: 1366, State: "HY000", Message: fmt.Sprintf("Incorrect integer value: '%v'", v)}
}

// textIn evaluates an expression as text.
func textIn(x expr, e *env) (string, error) {
	v, err := x(e)
	return textOf(v), err
}

func (p *parser) term() (expr, error) {
	switch t := p.next(); t.kind {
	case number:
		if n, err := strconv.ParseInt(t.s, 0, 64); err == nil {
			return constant(n), nil
		}
		if f, err := strconv.ParseFloat(t.s, 64); err == nil {
			return constant(f), nil
		}
	case text:
		return constant(t.s), nil
	case param:
		p.asked++
		i := p.asked - 1
		return func(e *env) (any, error) {
			if i >= len(e.args) {
				return nil, wire.Error{Code: 1210, State: "HY000", Message: "Incorrect arguments to EXECUTE"}
			}
			return e.args[i], nil
		}, nil
	case userVar:
		return func(e *env) (any, error) { return e.c.userVars[t.s], nil }, nil
	case sysVar:
		return sysVarExpr(t.s), nil
	case symbol:
		if t.s == "-" {
			x, err := p.term()
			return func(e *env) (any, error) { n, err := intOf(x, e); return -n, err }, err
		}
	case word:
		if p.accept("(") {
			return p.call(t.s)
		}
		if v, ok := map[string]any{"null": nil, "true": int64(1), "false": int64(0)}[t.s]; ok {
			return constant(v), nil
		}
		return func(e *env) (any, error) {
			if v, ok := e.row[t.s]; ok {
				return v, nil
			}
			return nil, wire.Error{Code: 1054, State: "42S22", Message: fmt.Sprintf("Unknown column '%s' in 'field list'", t.s)}
		}, nil
	}
	p.at = max(p.at-1, 0)
	return nil, p.fault()
}

// sysVarExpr reads a system variable, with or without its scope.
func sysVarExpr(name string) expr {
	for _, scope := range []string{"session.", "global.", "local."} {
		name = strings.TrimPrefix(name, scope)
	}
	return func(e *env) (any, error) {
		if name == "version" {
			return e.c.server.config.Version, nil
		}
		v, known := e.c.variable(name)
		if !known {
			return nil, wire.Error{Code: 1193, State: "HY000", Message: fmt.Sprintf("Unknown system variable '%s'", name)}
		}
		return v, nil
	}
}

// call parses the arguments of a function and returns its call.
func (p *parser) call(name string) (expr, error) {
	var args []expr
	for !p.accept(")") {
		if len(args) > 0 && !p.accept(",") {
			return nil, p.fault()
		}
		x, err := p.expr()
		if err != nil {
			return nil, err
		}
		args = append(args, x)
	}
	f, ok := functions[name]
	if !ok || len(args) != f.args {
		return nil, wire.Error{Code: 1305, State: "42000", Message: fmt.Sprintf("FUNCTION %s of %d arguments does not exist", name, len(args))}
	}
	return func(e *env) (any, error) {
		values := make([]any, len(args))
		for i, x := range args {
			var err error
			if values[i], err = x(e); err != nil {
				return nil, err
			}
		}
		return f.run(e.c, values)
	}, nil
}

// function is a function of args arguments.
type function struct {
	args int
	run  func(c *conn, args []any) (any, error)
}

var functions = map[string]function{
	"database":       {0, func(c *conn, _ []any) (any, error) { return nullIfEmpty(c.db), nil }},
	"connection_id":  {0, func(c *conn, _ []any) (any, error) { return int64(c.id), nil }},
	"last_insert_id": {0, func(c *conn, _ []any) (any, error) { return int64(c.lastInsertID), nil }},
	"user":           {0, func(c *conn, _ []any) (any, error) { return c.user + "@127.0.0.1", nil }},
	"current_user":   {0, func(c *conn, _ []any) (any, error) { return c.user + "@%", nil }},
	"version":        {0, func(c *conn, _ []any) (any, error) { return c.server.config.Version, nil }},
	"addr":           {0, func(c *conn, _ []any) (any, error) { return c.server.Addr(), nil }},
	"length":         {1, func(_ *conn, a []any) (any, error) { return int64(len(textOf(a[0]))), nil }},
	"repeat": {2, func(_ *conn, a []any) (any, error) {
		n, _ := a[1].(int64)
		if n < 0 || n*int64(len(textOf(a[0]))) > maxPacket {
			return nil, nil
		}
		return strings.Repeat(textOf(a[0]), int(n)), nil
	}},
	"sleep": {1, func(c *conn, a []any) (any, error) {
		c.server.sleep(textOf(a[0]))
		return int64(0), nil
	}},
	"get_lock": {2, func(c *conn, a []any) (any, error) {
		c.locks[textOf(a[0])] = true
		return int64(1), nil
	}},
	"release_lock": {1, func(c *conn, a []any) (any, error) {
		held := c.locks[textOf(a[0])]
		delete(c.locks, textOf(a[0]))
		if held {
			return int64(1), nil
		}
		return nil, nil
	}},
}

func nullIfEmpty(s string) any {
	if s == "" {
		return nil
	}
	return s
}

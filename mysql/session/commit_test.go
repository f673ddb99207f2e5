package session

import (
	"strings"
	"testing"

	"penstock/mysql/wire"
)

func TestBeginsTransaction(t *testing.T) {
	for text, want := range map[string]bool{
		"BEGIN": true, "begin": true, " \n\tBegin ; ": true, "begin;": true, "/* a */ BEGIN /* b */": true, "-- why\nbegin": true,
		"# why\r\nbegin": true, "begin -- why": true, "begin --": true, "/**/begin": true, "begin; -- done": true,
		"START TRANSACTION": true, "start\ttransaction;": true, "start/**/transaction": true, "START TRANSACTION READ WRITE": true,
		"start transaction with consistent snapshot": true,
		"": false, ";": false, ";begin": false, "begin;;": false, "begin; begin": false, "begin; SELECT 1": false,
		"BEGINS": false, "begin work": false, "BEGIN PESSIMISTIC": false, "START TRANSACTION READ ONLY": false, "START TRANSACTION READ WRITE, WITH CONSISTENT SNAPSHOT": false,
		"start transactions": false, "start": false, "start slave": false, "/*!50000 begin */": false, "/*T! x */ begin": false, "/*M! x */ begin": false,
		"/*+ x */ begin": false, "/* begin": false, "/*": false, "begin --work": false, "`begin`": false, "begin\x00": false, "BEG\u0130N": false, "beg\xff": false,
		"XA BEGIN 'x'": false, "COMMIT": false, "begin" + strings.Repeat(" ", 2000): false,
	} {
		p := wire.AppendPacket(nil, 0, append([]byte{byte(wire.ComQuery)}, text...))
		if got := beginsTransaction(p); got != want {
			t.Errorf("%q: %t, want %t", text, got, want)
		}
		for n := range len(p) {
			if beginsTransaction(p[:n]) {
				t.Errorf("%q, cut after %d bytes, begins a transaction", text, n)
			}
		}
	}
	for name, p := range map[string][]byte{
		"another command": wire.AppendPacket(nil, 0, append([]byte{byte(wire.ComStmtPrepare)}, "BEGIN"...)),
		"another number":  wire.AppendPacket(nil, 1, append([]byte{byte(wire.ComQuery)}, "BEGIN"...)),
	} {
		if beginsTransaction(p) {
			t.Errorf("%s begins a transaction", name)
		}
	}
}

package integration

import (
	"context"
	"crypto/tls"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"

	"penstock/internal/testkit"
	"penstock/mysql/mysqltest"
)

const (
	busyPort  = "9306"
	busyHeld  = 12 // sessions that a program holds; the others are those of pools
	busyPools = 4
	busyTotal = 200
	// busyAtOnce bounds the transactions that are under way: with more of them a
	// transaction would take seconds on a small machine.
	busyAtOnce = 24
)

// busyCluster is a cluster in front of servers that hand sessions over, and programs
// that use it.
type busyCluster struct {
	*cluster
	t       testing.TB
	ca      *authority
	servers []*mysqltest.Server
	dialed  atomic.Uint32

	stop   chan struct{}
	slots  chan struct{}
	wg     sync.WaitGroup
	rounds [busyTotal]atomic.Int64
	sum    atomic.Int64 // of what was acknowledged
	reopen atomic.Int64 // sessions that a program had to open again
	leaves atomic.Bool  // nodes leave: a session that is held may end

	mu      sync.Mutex
	written map[string]int64 // rows that must be there that often
}

func startBusyCluster(t *testing.T) *busyCluster {
	t.Helper()
	// The last transactions must end within a quarter of the window.
	b := &busyCluster{
		cluster: startCluster(t, 3, "--drain-timeout", "10s", "--access-log", "closed"), t: t, ca: newAuthority(t, "ca"),
		stop: make(chan struct{}), slots: make(chan struct{}, busyAtOnce), written: map[string]int64{},
	}
	signer, store := mysqltest.NewSigner(t), mysqltest.NewStore()
	for range 3 {
		b.servers = append(b.servers, mysqltest.New(t, mysqltest.Config{
			Signer: signer, Store: store, Users: map[string]mysqltest.User{"app": {Password: "secret"}},
		}))
	}
	b.members[0].apply(certificate("db", b.ca.issue("db.test")) + b.service(b.servers...) +
		"---\nkind: Listener\nname: db\nspec: {address: \":" + busyPort + "\", protocol: mysql, service: tidb, tls: {mode: terminate, certificateRefs: [db]}}\n")
	return b
}

// service returns the service with these servers.
func (b *busyCluster) service(servers ...*mysqltest.Server) string {
	var list []string
	for _, s := range servers {
		list = append(list, fmt.Sprintf("{address: %q}", s.Addr()))
	}
	return "---\nkind: Service\nname: tidb\nspec: {protocol: mysql, endpointDrain: {timeout: 1h}, endpoints: [" + strings.Join(list, ", ") + "]}\n"
}

// dial connects to the next node that takes connections, as a load balancer does.
func (b *busyCluster) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	var d net.Dialer
	var errs []error
	first := int(b.dialed.Add(1))
	for i := range b.members {
		c, err := d.DialContext(ctx, "tcp", b.members[(first+i)%len(b.members)].ip+":"+busyPort)
		if err == nil {
			return c, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// open returns a pool of that many sessions at all nodes.
func (b *busyCluster) open(sessions int, secure bool) *sql.DB {
	b.t.Helper()
	c := mysql.NewConfig()
	c.User, c.Passwd, c.Net, c.Addr, c.DialFunc = "app", "secret", "tcp", "db.test", b.dial
	c.Logger = log.New(io.Discard, "", 0)
	c.Params = map[string]string{"time_zone": "'+03:00'"}
	if secure {
		c.TLS = &tls.Config{ServerName: "db.test", RootCAs: b.ca.Pool}
	}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		b.t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(sessions)
	db.SetMaxIdleConns(sessions)
	b.t.Cleanup(func() { _ = db.Close() })
	return db
}

// work starts the programs: each uses one session at a time.
func (b *busyCluster) work() {
	const each = (busyTotal - busyHeld) / busyPools
	for p := range busyPools {
		db := b.open(each, p%2 == 1)
		insert, err := db.PrepareContext(b.t.Context(), "INSERT INTO counter VALUES (?, 1)")
		if err != nil {
			b.t.Fatal(err)
		}
		for i := range each {
			b.repeat(p*each+i, func(round string) error { return b.pooled(db, insert, round) })
		}
	}
	held := b.open(busyHeld, true)
	for i := range busyHeld {
		h := &heldSession{b: b, db: held}
		b.repeat(busyPools*each+i, h.round)
	}
}

// repeat calls do until the end, as one of the programs.
func (b *busyCluster) repeat(program int, do func(round string) error) {
	b.wg.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-b.stop:
				return
			case b.slots <- struct{}{}:
			}
			err := do(fmt.Sprintf("%d-%d", program, n))
			<-b.slots
			if err != nil {
				b.t.Errorf("program %d, round %d: %v", program, n, err)
				return
			}
			b.rounds[program].Add(1)
		}
	})
}

// wrote notes rows and a sum that a server has acknowledged.
func (b *busyCluster) wrote(sum int64, rows ...string) {
	b.sum.Add(sum)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range rows {
		b.written[r] = 1
	}
}

// refused notes a row that must not be there.
func (b *busyCluster) refused(row string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.written[row] = 0
}

// beginner is what a transaction begins on: a pool, or a session.
type beginner interface {
	BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
}

// transact writes two rows and adds to the sum, all or nothing. begun reports whether
// the server has begun the transaction.
func (b *busyCluster) transact(on beginner, name string) (begun bool, err error) {
	ctx := b.t.Context()
	tx, err := on.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback() }()
	for _, row := range []string{"left-" + name, "right-" + name} {
		if _, err := tx.ExecContext(ctx, "INSERT INTO counter VALUES (?, 1)", row); err != nil {
			return true, err
		}
	}
	if _, err := tx.ExecContext(ctx, "UPDATE counter SET value = value + 3 WHERE name = 'sum'"); err != nil {
		return true, err
	}
	if err := tx.Commit(); err != nil {
		return true, err
	}
	b.wrote(3, "left-"+name, "right-"+name)
	return true, nil
}

// pooled is a round of a program that uses a pool: no error may come through.
func (b *busyCluster) pooled(db *sql.DB, insert *sql.Stmt, name string) error {
	ctx := b.t.Context()
	if _, err := b.transact(db, name); err != nil {
		return fmt.Errorf("transaction: %w", err)
	}
	if _, err := insert.ExecContext(ctx, "prepared-"+name); err != nil {
		return fmt.Errorf("prepared: %w", err)
	}
	b.wrote(0, "prepared-"+name)
	if _, err := db.ExecContext(ctx, "INSERT INTO counter VALUES (?, 1)", "alone-"+name); err != nil {
		return fmt.Errorf("a statement with arguments: %w", err)
	}
	b.wrote(0, "alone-"+name)
	var zone string
	if err := db.QueryRowContext(ctx, "SELECT @@time_zone").Scan(&zone); err != nil {
		return fmt.Errorf("a query: %w", err)
	}
	if zone != "+03:00" {
		return fmt.Errorf("the session's time zone is %q, want %q", zone, "+03:00")
	}
	return nil
}

// heldSession is a program that keeps its session, and what it has set there.
type heldSession struct {
	b    *busyCluster
	db   *sql.DB
	conn *sql.Conn
	last string // value of @last; "" after a login
	find *sql.Stmt
}

// round is a round of such a program. While nodes leave, its session may end between
// two statements outside of a transaction, and what it then sent was not executed.
func (h *heldSession) round(name string) error {
	err := h.use(name)
	if err == nil || !h.b.leaves.Load() || !isClosedBetween(err) {
		return err
	}
	h.b.reopen.Add(1)
	_ = h.conn.Close()
	h.conn = nil
	return nil
}

// errInside marks an error within a transaction, where none may be.
var errInside = errors.New("within the transaction")

// isClosedBetween reports whether a session was closed before the server got the
// command: with error 1053, or it was found closed before anything was sent. database/sql
// tries a prepared statement once more then, which ends with ErrConnDone.
func isClosedBetween(err error) bool {
	var e *mysql.MySQLError
	return !errors.Is(err, errInside) &&
		(errors.As(err, &e) && e.Number == 1053 || errors.Is(err, driver.ErrBadConn) ||
			errors.Is(err, sql.ErrConnDone) || errors.Is(err, mysql.ErrBusyBuffer))
}

func (h *heldSession) use(name string) error {
	ctx := h.b.t.Context()
	if h.conn == nil {
		var err error
		if h.conn, err = h.db.Conn(ctx); err != nil {
			return fmt.Errorf("login: %w", err)
		}
		if h.find, err = h.conn.PrepareContext(ctx, "SELECT @last"); err != nil {
			return err
		}
		h.last = ""
	}
	var last sql.NullString
	if err := h.find.QueryRowContext(ctx).Scan(&last); err != nil {
		return err
	}
	if last.String != h.last {
		return fmt.Errorf("the session has %q in @last, want %q", last.String, h.last)
	}
	if _, err := h.conn.ExecContext(ctx, "SET @last = '"+name+"'"); err != nil {
		return err
	}
	h.last = name
	row := "held-" + name
	if _, err := h.conn.ExecContext(ctx, "INSERT INTO counter VALUES ('"+row+"', 1)"); err != nil {
		h.b.refused(row)
		return err
	}
	h.b.wrote(0, row)
	begun, err := h.b.transact(h.conn, name)
	if begun && err != nil {
		return fmt.Errorf("%w: %w", errInside, err)
	}
	return err
}

// progress waits until each program has finished that many more rounds.
func (b *busyCluster) progress(after string, rounds int64) {
	b.t.Helper()
	var before [busyTotal]int64
	for i := range b.rounds {
		before[i] = b.rounds[i].Load()
	}
	testkit.WaitFor(b.t, "all programs to go on after: "+after, func() bool {
		if b.t.Failed() {
			b.t.Fatalf("after: %s", after)
		}
		for i := range b.rounds {
			if b.rounds[i].Load() < before[i]+rounds {
				return false
			}
		}
		return true
	})
}

// drainServers takes each server out of the service, and puts it back when its sessions
// have moved.
func (b *busyCluster) drainServers() {
	b.t.Helper()
	for i, s := range b.servers {
		s.ShutDown(true)
		b.members[i%len(b.members)].apply(b.service(b.servers[(i+1)%3], b.servers[(i+2)%3]))
		testkit.WaitFor(b.t, fmt.Sprintf("the sessions of server %d to move", i), func() bool {
			if b.t.Failed() {
				b.t.FailNow()
			}
			return s.Conns() == 0
		})
		b.progress(fmt.Sprintf("server %d is drained", i), 1)
		s.ShutDown(false)
		b.members[i%len(b.members)].apply(b.service(b.servers...))
	}
}

// replaceCertificates changes the certificate of the listener, and waits until new
// logins get it at each node.
func (b *busyCluster) replaceCertificates() {
	b.t.Helper()
	next := b.ca.issue("db.test")
	b.members[1].apply(certificate("db", next))
	for _, m := range b.members {
		if got := servedByMySQL(b.t, m.ip+":"+busyPort, b.ca); string(got) != string(next.TLS.Certificate[0]) {
			b.t.Errorf("%s serves the old certificate after the change", m.name)
		}
	}
	b.progress("the certificate is replaced", 1)
}

// servedByMySQL returns the certificate that a new login gets, as DER.
func servedByMySQL(t testing.TB, addr string, ca *authority) (leaf []byte) {
	t.Helper()
	c := mysql.NewConfig()
	c.User, c.Passwd, c.Net, c.Addr = "app", "secret", "tcp", addr
	c.TLS = &tls.Config{ServerName: "db.test", RootCAs: ca.Pool, VerifyConnection: func(s tls.ConnectionState) error {
		leaf = s.PeerCertificates[0].Raw
		return nil
	}}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	if err := db.PingContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return leaf
}

// restartNodes stops and starts the nodes one after the other.
func (b *busyCluster) restartNodes() {
	b.t.Helper()
	b.leaves.Store(true)
	for _, m := range b.members {
		m.stop()
		b.progress(m.name+" is down", 1)
		m.launch()
		b.waitSettled(3)
		b.progress(m.name+" is up again", 1)
	}
	b.leaves.Store(false)
}

// mustAddUp checks what the servers have against what the programs were told.
func (b *busyCluster) mustAddUp() {
	b.t.Helper()
	all := b.servers[0].Store().Counters()
	if got, want := all["sum"], b.sum.Load(); got != want {
		b.t.Errorf("the sum is %d, the commits that were acknowledged are %d", got, want)
	}
	delete(all, "sum")
	for row, n := range b.written {
		if all[row] != n {
			b.t.Errorf("row %s is there %d times, want %d", row, all[row], n)
		}
		delete(all, row)
	}
	for row, n := range all {
		b.t.Errorf("row %s is there %d times, and nobody was told so", row, n)
	}
}

// While servers are drained, certificates change and nodes restart, 200 busy sessions go
// on: pools see no error, a session that is held ends only with its node and never
// within a transaction, and no write is lost, done twice or done in part.
func TestMySQLBusySessionsGoOn(t *testing.T) {
	t.Parallel()
	b := startBusyCluster(t)
	b.work()
	b.progress("the start", 2)
	turns := 1
	if long() {
		turns = 20
	}
	for range turns {
		b.drainServers()
		b.replaceCertificates()
		if n := b.reopen.Load(); turns == 1 && n != 0 {
			t.Errorf("%d sessions had to be opened again before a node left", n)
		}
		b.restartNodes()
		b.drainServers()
	}
	close(b.stop)
	b.wg.Wait()
	b.mustAddUp()
	total := int64(0)
	for i := range b.rounds {
		total += b.rounds[i].Load()
	}
	t.Logf("%d rounds, %d sessions opened again", total, b.reopen.Load())
	if b.reopen.Load() == 0 {
		t.Error("no held session ended with its node: the test has not seen what it is about")
	}
}

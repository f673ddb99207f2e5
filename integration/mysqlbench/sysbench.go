package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"penstock/internal/testkit/process"
)

// startMariaDB starts a server with sysbench's table. Where the programs are missing,
// it is an error on CI and said elsewhere.
func (e *env) startMariaDB() error {
	for _, name := range []string{"sysbench", "mariadbd", "mariadb-install-db"} {
		if _, err := exec.LookPath(name); err == nil {
			continue
		} else if os.Getenv("CI") == "true" {
			return err
		}
		log.Printf("NOT MEASURED: %s: %s is missing (make setup)", sysbenchName, name)
		return nil
	}
	data := filepath.Join(e.dir, "mariadb")
	out, err := command("mariadb-install-db", "--no-defaults", "--datadir="+data, "--auth-root-authentication-method=normal",
		"--skip-name-resolve", "--skip-test-db", "--user="+userName()).CombinedOutput()
	if err != nil {
		return fmt.Errorf("mariadb-install-db: %w\n%s", err, out)
	}
	ports, err := process.FreePorts(1)
	if err != nil {
		return err
	}
	e.mariaPort = ports[0]
	server, err := exec.LookPath("mariadbd")
	if err != nil {
		return err
	}
	e.maria, err = process.Start("mariadbd", e.dir, []string{server, "--no-defaults", "--datadir=" + data, "--user=" + userName(),
		"--socket=" + filepath.Join(e.dir, "maria.sock"), "--bind-address=127.0.0.1", "--port=" + strconv.Itoa(e.mariaPort),
		"--skip-name-resolve", "--max-connections=400", "--innodb-buffer-pool-size=64M", "--innodb-flush-log-at-trx-commit=0"}, e.mariaPort)
	if err != nil {
		return err
	}
	if _, err := e.sql(e.mariaDB(), "create database sbtest"); err != nil {
		return err
	}
	_, err = e.runSysbench(e.mariaDB(), 1, "oltp_read_write", "prepare")
	return err
}

// command returns a command that ends by itself.
func command(name string, args ...string) *exec.Cmd {
	return exec.CommandContext(context.Background(), name, args...)
}

// userName is the account that runs this program: MariaDB refuses root unless told so.
func userName() string {
	if os.Getuid() == 0 {
		return "root"
	}
	return os.Getenv("USER")
}

// sql executes a statement with the client of MariaDB.
func (e *env) sql(address, statement string) ([]byte, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	out, err := command("mariadb", "--no-defaults", "--host="+host, "--port="+port, "--user=root", "--execute="+statement).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", statement, err, out)
	}
	return out, err
}

// runSysbench runs a test of sysbench for whole seconds and returns what it prints.
func (e *env) runSysbench(address string, seconds int, test, action string, more ...string) ([]byte, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	args := append([]string{test, "--mysql-host=" + host, "--mysql-port=" + port, "--mysql-user=root", "--mysql-db=sbtest",
		"--tables=1", "--table-size=10000", "--threads=50", "--time=" + strconv.Itoa(seconds)}, more...)
	out, err := command("sysbench", append(args, action)...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("sysbench %s: %w\n%s", test, err, out)
	}
	return out, err
}

// performed and failed are what sysbench says of a run.
var (
	performed = regexp.MustCompile(`queries performed:[^:]*:[^:]*:[^:]*:[^:]*total: +(\d+)`)
	failed    = regexp.MustCompile(`reconnects: +(\d+)`)
)

// sysbench runs a test, of which one query is a unit. Its sessions are opened within
// what is measured.
func sysbench(test string, more ...string) func(*env, *path, time.Duration) (cost, error) {
	return func(e *env, p *path, d time.Duration) (cost, error) {
		seconds := int(max(d.Round(time.Second)/time.Second, 1))
		return p.proxy.charge(func() (float64, error) {
			out, err := e.runSysbench(p.address, seconds, test, "run", more...)
			if err != nil {
				return 0, err
			}
			m, lost := performed.FindSubmatch(out), failed.FindSubmatch(out)
			if m == nil || lost == nil || string(lost[1]) != "0" {
				return 0, fmt.Errorf("sysbench %s lost connections, or says nothing of its queries:\n%s", test, out)
			}
			return strconv.ParseFloat(string(m[1]), 64)
		})
	}
}

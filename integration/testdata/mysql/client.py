"""Prints what PyMySQL gets of a server: client.py PORT USER PASSWORD CA [LINES].

Two servers that behave alike make it print the same. CA is the file of a
certificate authority, or empty for no TLS; LINES a file for LOAD DATA LOCAL.
"""

import hashlib
import sys

import pymysql
from pymysql.constants import CLIENT, COMMAND
from pymysql.cursors import DictCursor, SSCursor

port, user, password, ca = sys.argv[1:5]


def connect(**more):
    args = dict(
        host="127.0.0.1", port=int(port), user=user, password=password, database="sweep", local_infile=True,
        charset="utf8mb4", client_flag=CLIENT.MULTI_STATEMENTS,
    )
    if ca:
        args["ssl"] = {"ca": ca}
    return pymysql.connect(**{**args, **more})


def shown(value):
    if isinstance(value, (bytes, str)) and len(value) > 200:
        raw = value if isinstance(value, bytes) else value.encode()
        return f"{type(value).__name__} {len(raw)} {hashlib.sha256(raw).hexdigest()}"
    return repr(value)


def show(cursor):
    """Prints all results of a cursor."""
    while True:
        if cursor.description:
            print("columns", [d[:2] for d in cursor.description])
        rows = cursor.fetchall()
        for row in rows:
            print("row", [shown(v) for v in (row.values() if isinstance(row, dict) else row)])
        print("end", len(rows), cursor.rowcount, cursor.lastrowid, cursor.connection.server_status)
        if not cursor.nextset():
            return


def run(cursor, sql, args=None):
    print("--", sql[:80])
    try:
        cursor.execute(sql, args)
        show(cursor)
    except pymysql.MySQLError as e:
        print(type(e).__name__, e.args)
    cursor.execute("SHOW WARNINGS")
    print("warnings", cursor.fetchall())


def statements(c):
    cursor = c.cursor()
    run(cursor, "CREATE TEMPORARY TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, s VARCHAR(5), b LONGBLOB, d DECIMAL(10,3), w DATETIME(6))")
    run(cursor, "INSERT INTO t (s, b, d, w) VALUES (%s, %s, %s, %s)", ("ä€😀", bytes(range(256)), "1.5", "2024-02-29 01:02:03.000004"))
    run(cursor, "INSERT INTO t (s, d) VALUES (%s, NULL), ('x', 2)", ("y",))
    print("many", cursor.executemany("INSERT INTO t (s) VALUES (%s)", [(f"m{i}",) for i in range(200)]))
    run(cursor, "SELECT * FROM t WHERE id < 5")
    run(cursor, "UPDATE t SET s = 'y' WHERE s = 'y'")
    run(cursor, "INSERT IGNORE INTO t (s) VALUES ('much too long')")
    run(cursor, "SELECT 1 FROM nowhere")
    run(cursor, "SELEKT")
    run(cursor, "SELECT 1/0, 'a' + 1")
    run(cursor, "SELECT 1; SELECT 2, 'two'; UPDATE t SET d = 1 LIMIT 2; SELECT 3")
    run(cursor, "SELECT 1; SELECT * FROM nowhere; SELECT 3")
    run(cursor, "CALL twice(7)")
    cursor.callproc("twice", (8,))
    show(cursor)
    for n in 250, 251, 65535, 65536, 16_777_216:
        run(cursor, f"SELECT REPEAT('x', {n})")
    run(cursor, "SELECT %s", ("z" * 17_000_000,))
    run(c.cursor(DictCursor), "SELECT * FROM fixed")
    run(c.cursor(SSCursor), "SELECT seq, REPEAT(seq % 10, 100) FROM seq_1_to_500")


def transactions(c):
    cursor = c.cursor()
    for sql in "BEGIN", "INSERT INTO t (s) VALUES ('tx')", "SELECT COUNT(*) FROM t", "ROLLBACK", "SELECT COUNT(*) FROM t":
        run(cursor, sql)
    c.autocommit(False)
    run(cursor, "INSERT INTO t (s) VALUES ('tx')")
    c.commit()
    c.autocommit(True)
    c.select_db("other")
    run(cursor, "SELECT DATABASE(), USER(), CURRENT_USER(), @@character_set_client")
    c.ping(reconnect=False)
    c.select_db("sweep")
    try:
        c.select_db("mysql")
    except pymysql.MySQLError as e:
        print(type(e).__name__, e.args)
    for command in COMMAND.COM_STATISTICS, COMMAND.COM_PING:
        c._execute_command(command, "")
        print("command", command, len(c._read_packet().get_all_data()) > 0)


def load(c, lines):
    cursor = c.cursor()
    run(cursor, "CREATE TEMPORARY TABLE loaded (n INT, s VARCHAR(40))")
    into = " INTO TABLE loaded FIELDS TERMINATED BY ','"
    run(cursor, f"LOAD DATA LOCAL INFILE '{lines}'{into}")
    run(cursor, "SELECT COUNT(*), SUM(n), SUM(CRC32(s)) FROM loaded")
    run(cursor, "LOAD DATA LOCAL INFILE '/nowhere/at/all'" + into)
    run(cursor, f"LOAD DATA LOCAL INFILE '{lines}' INTO TABLE nowhere")
    run(cursor, f"SELECT 1; LOAD DATA LOCAL INFILE '{lines}'{into}; SELECT COUNT(*) FROM loaded")
    with connect(local_infile=False) as without:
        run(without.cursor(), f"LOAD DATA LOCAL INFILE '{lines}' INTO TABLE fixed")


def main():
    try:
        c = connect()
    except pymysql.MySQLError as e:
        print(type(e).__name__, e.args)
        return
    with c:
        print("server", c.get_server_info(), c.get_proto_info(), c.character_set_name())
        if len(sys.argv) > 5:
            statements(c)
            transactions(c)
            load(c, sys.argv[5])
        run(c.cursor(), "SELECT CURRENT_USER()")
    for more in {"database": "nowhere"}, {"database": None}, {"init_command": "SET @x = 1"}, {"sql_mode": "ANSI"}:
        try:
            with connect(**more) as c:
                run(c.cursor(), "SELECT DATABASE(), @x, @@sql_mode")
        except pymysql.MySQLError as e:
            print(type(e).__name__, e.args)


main()

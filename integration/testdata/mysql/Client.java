import java.io.ByteArrayInputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.sql.*;
import java.util.HexFormat;

/** Prints what a JDBC driver gets of servers: Client LINES (OUTPUT URL USER PASSWORD)... Two servers that behave alike
 * make it write the same outputs. LINES is a file for LOAD DATA LOCAL. */
class Client {
    static PrintStream out;

    public static void main(String[] args) throws Exception {
        for (int i = 1; i < args.length; i += 4) {
            out = new PrintStream(args[i], StandardCharsets.UTF_8);
            try (Connection c = DriverManager.getConnection(args[i + 1], args[i + 2], args[i + 3])) {
                statements(c);
                prepared(c);
                load(c, args[0]);
                transactions(c);
            } catch (SQLException e) {
                fault(e);
            }
            out.close();
        }
    }

    static void fault(SQLException e) {
        // The text of a driver's own faults has the address and times.
        out.println("error " + e.getErrorCode() + " " + e.getSQLState() + (e.getErrorCode() == 0 ? "" : " " + e.getMessage().replaceAll("\\(conn=\\d+\\) ", "")));
    }

    static String shown(Object v) throws Exception {
        byte[] raw = v instanceof byte[] b ? b : String.valueOf(v).getBytes(StandardCharsets.UTF_8);
        if (raw.length <= 200 && !(v instanceof byte[])) return String.valueOf(v);
        return raw.length + " " + HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(raw));
    }

    static void show(Statement s, boolean rows) throws Exception {
        for (; ; rows = s.getMoreResults()) {
            if (!rows) {
                if (s.getUpdateCount() < 0) break;
                out.println("updated " + s.getUpdateCount());
                continue;
            }
            ResultSet r = s.getResultSet();
            ResultSetMetaData m = r.getMetaData();
            for (int i = 1; i <= m.getColumnCount(); i++) {
                out.println("column " + m.getColumnLabel(i) + " " + m.getColumnTypeName(i) + " " + m.getPrecision(i) + " " + m.getTableName(i));
            }
            int n = 0;
            for (; r.next(); n++) {
                StringBuilder row = new StringBuilder("row");
                for (int i = 1; i <= m.getColumnCount(); i++) row.append(" ").append(shown(r.getObject(i)));
                out.println(row);
            }
            out.println("rows " + n);
        }
        for (SQLWarning w = s.getWarnings(); w != null; w = w.getNextWarning()) out.println("warning " + w.getErrorCode() + " " + w.getMessage());
    }

    static void run(Connection c, String sql) throws Exception {
        out.println("-- " + sql.substring(0, Math.min(80, sql.length())));
        try (Statement s = c.createStatement()) {
            show(s, s.execute(sql));
        } catch (SQLException e) {
            fault(e);
        }
    }

    static void statements(Connection c) throws Exception {
        DatabaseMetaData m = c.getMetaData();
        out.println(m.getDatabaseProductName() + " " + m.getDatabaseProductVersion() + " " + c.getCatalog() + " " + c.getTransactionIsolation());
        for (String sql : new String[] {
            "CREATE TEMPORARY TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, s VARCHAR(5), b LONGBLOB, d DECIMAL(10,3), w DATETIME(6))",
            "INSERT INTO t (s, d) VALUES ('a', 1), ('ä€', 2.5)", "SELECT * FROM t", "UPDATE t SET d = 3", "SELEKT", "SELECT 1 FROM nowhere",
            "SELECT 1; SELECT 2; UPDATE t SET d = 4; SELECT 3", "SELECT 1; SELECT * FROM nowhere", "CALL twice(3)",
            "INSERT IGNORE INTO t (s) VALUES ('much too long')", "SELECT REPEAT('x', 1000000)",
            "SELECT seq FROM seq_1_to_300"}) {
            run(c, sql);
        }
        try (CallableStatement s = c.prepareCall("{call out_param(?, ?)}")) {
            s.setInt(1, 21);
            s.registerOutParameter(2, Types.INTEGER);
            show(s, s.execute());
            out.println("out " + s.getInt(2));
        } catch (SQLException e) {
            fault(e);
        }
        try (ResultSet r = m.getColumns(null, "sweep", "fixed", "%")) {
            while (r.next()) out.println("metadata " + r.getString("COLUMN_NAME") + " " + r.getString("TYPE_NAME") + " " + r.getString("COLUMN_DEF"));
        } catch (SQLException e) {
            fault(e);
        }
    }

    static void prepared(Connection c) throws Exception {
        byte[] big = new byte[300_000];
        for (int i = 0; i < big.length; i++) big[i] = (byte) (i * 31);
        try (PreparedStatement s = c.prepareStatement("INSERT INTO t (s, b, d, w) VALUES (?, ?, ?, ?)", Statement.RETURN_GENERATED_KEYS)) {
            for (int i = 0; i < 50; i++) {
                s.setString(1, "p" + i);
                s.setBytes(2, new byte[] {0, (byte) i, (byte) 255});
                s.setBigDecimal(3, new java.math.BigDecimal(i).movePointLeft(2));
                s.setTimestamp(4, Timestamp.valueOf("2024-02-29 01:02:03.000004"));
                s.addBatch();
            }
            for (int n : s.executeBatch()) out.print(n + " ");
            out.println();
            s.setString(1, "big");
            s.setBinaryStream(2, new ByteArrayInputStream(big), big.length); // long data
            s.setNull(3, Types.DECIMAL);
            s.setNull(4, Types.TIMESTAMP);
            out.println("inserted " + s.executeUpdate());
            try (ResultSet keys = s.getGeneratedKeys()) {
                while (keys.next()) out.println("key " + keys.getLong(1));
            }
            s.setString(1, "much too long");
            out.println("inserted " + s.executeUpdate());
        } catch (SQLException e) {
            fault(e);
        }
        try (PreparedStatement s = c.prepareStatement("SELECT * FROM t WHERE id > ? ORDER BY id", ResultSet.TYPE_FORWARD_ONLY, ResultSet.CONCUR_READ_ONLY)) {
            s.setFetchSize(7); // a cursor, where the URL asks for one
            for (int from : new int[] {0, 40, 1000}) {
                s.setInt(1, from);
                show(s, s.execute());
            }
            s.setMaxRows(3);
            show(s, s.execute());
        } catch (SQLException e) {
            fault(e);
        }
        try (PreparedStatement s = c.prepareStatement("SELECT * FROM nowhere WHERE id = ?")) {
            s.setInt(1, 1);
            show(s, s.execute());
        } catch (SQLException e) {
            fault(e);
        }
    }

    static void load(Connection c, String lines) throws Exception {
        run(c, "CREATE TEMPORARY TABLE loaded (n INT, s VARCHAR(40))");
        run(c, "LOAD DATA LOCAL INFILE '" + lines + "' INTO TABLE loaded FIELDS TERMINATED BY ','");
        run(c, "LOAD DATA LOCAL INFILE '" + lines + "' INTO TABLE nowhere");
        run(c, "LOAD DATA LOCAL INFILE '" + lines + "' INTO TABLE loaded FIELDS TERMINATED BY ','; SELECT COUNT(*), SUM(n) FROM loaded");
    }

    static void transactions(Connection c) throws Exception {
        c.setAutoCommit(false);
        run(c, "INSERT INTO t (s) VALUES ('tx')");
        Savepoint point = c.setSavepoint();
        run(c, "INSERT INTO t (s) VALUES ('tx2')");
        c.rollback(point);
        c.commit();
        run(c, "SELECT COUNT(*) FROM t");
        c.setAutoCommit(true);
        c.setCatalog("other");
        out.println(c.getCatalog() + " " + c.isValid(5));
        run(c, "SELECT CURRENT_USER(), DATABASE()");
    }
}

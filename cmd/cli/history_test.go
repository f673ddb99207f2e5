package cli

import (
	"context"
	"testing"
	"time"

	"penstock/node/api"
	"penstock/node/rpc"
)

func serveHistory(r *api.HistoryResult) func(*rpc.Server) {
	return func(s *rpc.Server) {
		rpc.Handle(s, api.MethodHistory, api.RoleReader, func(context.Context, *api.HistoryRequest) (*api.HistoryResult, error) {
			return r, nil
		})
	}
}

func TestHistoryShowsWhoChangedWhat(t *testing.T) {
	at := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	serveAdmin(t, serveHistory(&api.HistoryResult{Kind: "Service", Name: "apps", Revisions: []api.Revision{
		{Version: 9, At: at.Add(2 * time.Hour), Who: "ann", What: "delete", Deleted: true},
		{Version: 8, At: at.Add(time.Hour), Who: "cd\x1b[2J", What: "rollback to 3", YAML: "a: 1\nb: 3\n"},
		{Version: 7, At: at.Add(time.Hour), Who: "ann", What: "apply", YAML: "a: 1\nb: 3\n"},
		{Version: 3, At: at, Who: "local", What: "apply", YAML: "a: 1\nb: 2\n"},
	}}))
	penstock("history", "service", "apps").want(t, 0, `VERSION   WHEN                   WHO           WHAT
9         2026-11-21T12:00:00Z   ann           delete
8         2026-11-21T11:00:00Z   "cd\x1b[2J"   rollback to 3
7         2026-11-21T11:00:00Z   ann           apply
3         2026-11-21T10:00:00Z   local         apply
`, "")
	penstock("history", "service", "apps", "--diff").want(t, 0, `version 9, 2026-11-21T12:00:00Z, ann: delete
diff Service/apps (version 8) /dev/null
--- Service/apps (version 8)
+++ /dev/null
@@ -1,2 +0,0 @@
-a: 1
-b: 3

version 8, 2026-11-21T11:00:00Z, "cd\x1b[2J": rollback to 3
only hidden values changed

version 7, 2026-11-21T11:00:00Z, ann: apply
diff Service/apps (version 3) Service/apps (version 7)
--- Service/apps (version 3)
+++ Service/apps (version 7)
@@ -1,2 +1,2 @@
 a: 1
-b: 2
+b: 3

version 3, 2026-11-21T10:00:00Z, local: apply
the oldest version kept, in full
diff /dev/null Service/apps (version 3)
--- /dev/null
+++ Service/apps (version 3)
@@ -0,0 +1,2 @@
+a: 1
+b: 2
`, "")
	penstock("history", "service", "apps", "-o", "yaml").want(t, 0, `# version 9, 2026-11-21T12:00:00Z, ann: delete
---
# version 8, 2026-11-21T11:00:00Z, "cd\x1b[2J": rollback to 3
a: 1
b: 3
---
# version 7, 2026-11-21T11:00:00Z, ann: apply
a: 1
b: 3
---
# version 3, 2026-11-21T10:00:00Z, local: apply
a: 1
b: 2
`, "")
}

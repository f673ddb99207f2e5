// A browser beside the other tests would take the time that these count on.

//go:build !race

package integration

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"penstock/internal/testkit"
)

// The bundle that is committed is what its sources give, in any folder and every time.
func TestDashboardBundleIsBuiltFromItsSources(t *testing.T) {
	t.Parallel()
	dir := dashboardSources(t)
	npm := func(args ...string) {
		t.Helper()
		cmd := exec.Command("npm", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("npm %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	npm("run", "--silent", "check")
	built := t.TempDir()
	npm("run", "--silent", "build", "--", "--out", built)
	want, have := treeOf(t, built), treeOf(t, filepath.FromSlash("../node/ui/dist"))
	for name, content := range want {
		if !bytes.Equal(content, have[name]) {
			t.Errorf("node/ui/dist/%s is not what node/ui/app gives: run make ui", name)
		}
	}
	for name := range have {
		if want[name] == nil {
			t.Errorf("node/ui/dist/%s is not built by node/ui/app: run make ui", name)
		}
	}
}

func treeOf(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		all[filepath.ToSlash(name)], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// markup is text of a peer that would run a script if it were taken for more than text.
const markup = `<img src=x onerror=alert(1)>`

// dashboardCluster has three nodes, a split service and one whose endpoint does not
// answer, and clients that stay.
func dashboardCluster(t *testing.T) *cluster {
	t.Helper()
	requirePeer(t, "chromium")
	f := startCluster(t, 3)
	endpoints := []string{
		fmt.Sprintf("{address: %q, tags: {version: v1}}", testkit.Serve(t, echo)),
		fmt.Sprintf("{address: %q, tags: {version: v1}}", testkit.Serve(t, echo)),
		fmt.Sprintf("{address: %q, tags: {version: v2}}", testkit.Serve(t, echo)),
	}
	f.members[0].apply(service("apps", endpoints) + listenerAt("edge", ":9100", "service: apps") +
		service("orders", []string{testkit.Serve(t, echo)}) + listenerAt("orders-in", ":9101", "service: orders") +
		service("billing", []string{testkit.FreeAddress(t)}, "healthCheck: {type: tcp, interval: 1s, timeout: 1s, rise: 1, fall: 1}") +
		listenerAt("billing-in", ":9102", "service: billing") + `---
kind: MeshTCPRoute
name: canary
spec:
  targetRef: {kind: Mesh}
  to:
  - targetRef: {kind: MeshService, name: apps}
    rules:
    - default:
        backendRefs:
        - {kind: MeshServiceSubset, name: apps, weight: 90, tags: {version: v1}}
        - {kind: MeshServiceSubset, name: apps, weight: 10, tags: {version: v2}}
`)
	for _, m := range f.members {
		for i := range 20 {
			port := "9100"
			if i%4 == 3 {
				port = "9101"
			}
			roundTrip(t, dial(t, m.ip+":"+port), "hello")
		}
	}
	return f
}

// views are those that every check of all views looks at.
var views = []struct{ name, path, ready string }{
	{"overview", "/", `document.querySelectorAll("#main table").length >= 3 && document.querySelectorAll(".memory").length === 3`},
	{"flow", "/flow", `document.querySelector("#main canvas[aria-label*=apps]")`},
	{"flow as a table", "/flow?as=table", `document.querySelectorAll("#main tbody tr").length > 0`},
}

// A user logs in and sees the cluster; every view is accessible in both themes and fits a
// phone.
func TestDashboardShowsTheCluster(t *testing.T) {
	t.Parallel()
	f := dashboardCluster(t)
	p := newPage(t, f.members[0].http)
	p.prefer("light")
	p.open("/flow")
	p.wait("the form of the login", `document.activeElement.id === "token"`)
	p.mustBeAccessible("the login")
	p.press("button", "Log in")
	p.waitText("[role=alert]", "Enter a token")
	p.enter("#token", "pst1.wrong\r")
	p.wait("the refusal", `document.querySelector("[role=alert]").textContent.includes("token") && !document.querySelector("[role=alert]").textContent.includes("Enter")`)
	p.open("/")
	p.login(f.members[0].token("--name", "ann", "--role", "admin"))
	p.waitText("#main h1", "Overview")
	p.waitText(".problems .about", "Service/billing")
	p.waitText(".problems code", "penstock")
	for _, name := range []string{"n1", "n2", "n3", "edge", "orders-in", "billing"} {
		p.waitText("#main table", name)
	}
	p.wait("the traffic", `document.querySelectorAll(".tile .spark polyline").length >= 4`)
	for _, v := range views {
		for _, theme := range []string{"light", "dark"} {
			p.prefer(theme)
			p.size(1440, 900)
			p.open(v.path)
			p.wait(v.name, v.ready)
			p.mustBeAccessible(v.name + ", " + theme)
			if !strings.Contains(v.path, "?") {
				p.picture(v.name + "-" + theme)
			}
			p.size(360, 740)
			p.mustFit(v.name + " on a phone")
			p.mustBeAccessible(v.name + " on a phone, " + theme)
		}
	}
	paint := evaluate[float64](p, `performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? -1`)
	t.Logf("first contentful paint after %.0f ms, in a test beside others", paint)
}

// The keyboard alone reaches everything: a skip link first, the menu, a panel that Esc
// closes and that gives the focus back.
func TestDashboardByKeyboard(t *testing.T) {
	t.Parallel()
	f := dashboardCluster(t)
	p := newPage(t, f.members[0].http)
	p.login(f.members[0].token("--name", "ann", "--role", "reader"))
	p.open("/flow?as=table")
	p.wait("the table", views[2].ready)
	p.keys("\t")
	p.wait("the skip link", `document.activeElement.matches(".skip") && document.activeElement.getBoundingClientRect().left >= 0`)
	p.keys("\r")
	p.wait("the focus in the content", `document.activeElement.id === "main"`)
	evaluate[bool](p, `document.querySelector("#main tbody button.link").focus(), true`)
	p.keys("\r")
	p.wait("the panel", `document.querySelector("dialog[open]")?.contains(document.activeElement)`)
	p.waitText("dialog .steps h3", "listener")
	p.mustBeAccessible("the panel of a decision")
	p.waitText("dialog", "Only a token of an admin")
	p.keys("\x1b")
	p.wait("the focus back in the table", `!document.querySelector("dialog[open]") && document.activeElement.matches("tbody button.link")`)
}

// An admin moves the slider of a split, sees what it would do, reads the difference and
// applies it.
func TestDashboardAppliesASplit(t *testing.T) {
	t.Parallel()
	f := dashboardCluster(t)
	p := newPage(t, f.members[1].http)
	p.prefer("light")
	p.login(f.members[0].token("--name", "ann", "--role", "admin"))
	p.open("/flow?as=table&service=apps")
	p.press("#main tbody button.link", "edge")
	p.waitText("dialog .steps", "apps")
	p.waitText("dialog output", "90%")
	evaluate[bool](p, `(() => {
		const slider = document.querySelector("#weight-1");
		slider.value = 40;
		slider.dispatchEvent(new Event("input", {bubbles: true}));
		return true;
	})()`)
	p.waitText("dialog output", "60%")
	p.waitText("dialog .effect table", "400")
	p.mustBeAccessible("a split")
	p.picture("split")
	p.press("dialog button", "Review the change")
	p.waitText("dialog .diff .added", "weight: 40")
	p.waitText("dialog .diff .removed", "weight: 10")
	if out := f.members[2].must("get", "meshtcproute", "canary", "-o", "yaml"); strings.Contains(out, "40") {
		t.Errorf("the route has changed before it is applied:\n%s", out)
	}
	p.press("dialog.middle .actions button", "Apply")
	p.waitText("dialog [role=status]", "Applied on 3 nodes")
	if out := f.members[2].must("get", "meshtcproute", "canary", "-o", "yaml"); !strings.Contains(out, "weight: 40") || !strings.Contains(out, "weight: 60") {
		t.Errorf("the route on another node:\n%s", out)
	}
}

// The page of a node goes on when the others die, and names them; when its own node is
// gone it says since when, and is live again with it.
func TestDashboardSurvivesNodes(t *testing.T) {
	t.Parallel()
	f := dashboardCluster(t)
	p := newPage(t, f.members[0].http)
	p.login(f.members[0].token("--name", "ann", "--role", "admin"))
	p.waitText(".link-state", "Live")
	p.waitText("#main table", "orders-in")
	f.members[1].kill()
	p.waitText(".problems .about", "Node/n2")
	f.members[2].kill()
	p.waitText(".problems .about", "Node/n3")
	p.waitText("#main table", "unreachable")
	p.waitText(".link-state", "Live")
	f.members[0].kill()
	p.waitText(".lost", "No news from n1 since")
	p.wait("the age of the values", `Number(document.querySelector(".lost")?.dataset.stale) >= 1`)
	p.wait("the ways to other nodes", fmt.Sprintf(`[...document.querySelectorAll(".lost a")].some(a => a.href === %q)`, "http://"+f.members[1].http+"/ui/"))
	p.mustBeAccessible("a page whose node is gone")
	for _, m := range f.members {
		m.startProcess()
	}
	p.waitText(".link-state", "Live")
	p.wait("the warning to go", `!document.querySelector(".lost")`)
}

// Text of peers is shown as text: a tag of an endpoint, and a server name in an
// explanation.
func TestDashboardShowsTextAsText(t *testing.T) {
	t.Parallel()
	requirePeer(t, "chromium")
	n := startNode(t, service("apps", []string{testkit.Serve(t, echo)})+listenerAt("edge", "127.0.0.1:0", "service: apps"))
	p := newPage(t, n.http)
	c := dial(t, n.addr("edge"))
	roundTrip(t, c, "hello")
	p.open("/flow?as=table")
	p.press("#main tbody button.link", "edge")
	p.waitText("dialog .steps", "apps")
	p.enter("dialog input", markup)
	p.waitText("dialog", "onerror=alert(1)")
	p.waitText("dialog .command", markup)
	p.open("/flow?service=" + "%3Cimg+src%3Dx+onerror%3Dalert(1)%3E")
	p.wait("the filter", fmt.Sprintf(`[...document.querySelectorAll("#main input")].some(e => e.value === %q)`, markup))
	if images := evaluate[int](p, `document.querySelectorAll("img, script:not([src])").length`); images != 0 {
		t.Errorf("text has become %d elements", images)
	}
}

// A browser beside the other tests would take the time that these count on.

//go:build !race

package integration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"penstock/internal/testkit"
)

// page is a tab of headless Chromium that looks at a node's dashboard. What a page of
// the dashboard must never do fails the test whenever it happens: an exception, or
// anything that the Content-Security-Policy refuses.
type page struct {
	t    testing.TB
	ctx  context.Context
	base string // of the addresses that open takes
}

// browserFlags make Chromium work in a container, with a memory of its own for each test.
var browserFlags = []chromedp.ExecAllocatorOption{
	chromedp.NoSandbox, chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("force-device-scale-factor", "1"),
}

// newPage starts a browser with one tab, at a node whose address is host:port.
func newPage(t testing.TB, address string) *page {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], browserFlags...)
	options = append(options, chromedp.ExecPath(requirePeer(t, "chromium")), chromedp.UserDataDir(t.TempDir()))
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	p := &page{t: t, base: "http://" + address}
	var mu sync.Mutex
	var bad []string
	ctx, cancel := chromedp.NewContext(allocator, chromedp.WithListener(func(ev any) {
		mu.Lock()
		defer mu.Unlock()
		switch e := ev.(type) {
		case *runtime.EventExceptionThrown:
			bad = append(bad, fmt.Sprintf("%s %s", e.ExceptionDetails.Text, e.ExceptionDetails.Exception.Description))
		case *log.EventEntryAdded:
			if strings.Contains(e.Entry.Text, "Content Security Policy") {
				bad = append(bad, e.Entry.Text)
			}
		}
	}))
	p.ctx = ctx
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the page at the end of the test:\n%s", p.text())
		}
		_ = chromedp.Cancel(ctx)
		cancel()
		stop()
		mu.Lock()
		defer mu.Unlock()
		for _, text := range bad {
			t.Errorf("in the browser: %s", text)
		}
	})
	p.size(1440, 900)
	call(p, log.Enable, cdp.Empty{})
	return p
}

// do performs actions and fails the test if one does not succeed.
func (p *page) do(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, actions...); err != nil {
		p.t.Fatal(err)
	}
}

// call sends a command of the DevTools protocol.
func call[P, R any](p *page, command cdp.Command[P, R], params P) {
	p.t.Helper()
	if _, err := chromedp.Call(p.ctx, command, params); err != nil {
		p.t.Fatal(err)
	}
}

// evaluate returns what an expression, or the promise that it is, gives.
func evaluate[T any](p *page, expression string) T {
	p.t.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// size sets the size of the window, in CSS pixels.
func (p *page) size(width, height int64) {
	p.t.Helper()
	p.do(chromedp.EmulateViewport(width, height))
}

// prefer sets what the system of the user asks pages for: "light" or "dark", and no motion.
func (p *page) prefer(theme string) {
	p.t.Helper()
	call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: theme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}})
}

// open goes to a view, such as /flow.
func (p *page) open(view string) {
	p.t.Helper()
	p.do(chromedp.Navigate(p.base + "/ui" + view))
}

// login enters a token as a user does.
func (p *page) login(token string) {
	p.t.Helper()
	p.open("/")
	p.wait("the form of the login", `document.querySelector("#token")`)
	p.do(chromedp.SendKeys("#token", token+"\r"))
	p.wait("the first view", `document.querySelector("#main h1")`)
}

// wait waits until an expression is true.
func (p *page) wait(what, expression string) {
	p.t.Helper()
	testkit.WaitFor(p.t, what+" in the browser", func() bool {
		return evaluate[bool](p, "!!("+expression+")")
	})
}

// waitText waits until an element has a text.
func (p *page) waitText(selector, text string) {
	p.t.Helper()
	p.wait(fmt.Sprintf("%q in %s", text, selector), fmt.Sprintf("[...document.querySelectorAll(%q)].some(e => e.textContent.includes(%q))", selector, text))
}

// press clicks the first element that has this text, with what a mouse does.
func (p *page) press(selector, text string) {
	p.t.Helper()
	p.waitText(selector, text)
	const mark = "data-test-target"
	evaluate[bool](p, fmt.Sprintf(`(() => {
		document.querySelectorAll("[%[1]s]").forEach(e => e.removeAttribute("%[1]s"));
		[...document.querySelectorAll(%[2]q)].find(e => e.textContent.includes(%[3]q)).setAttribute("%[1]s", "");
		return true;
	})()`, mark, selector, text))
	p.do(chromedp.Click("[" + mark + "]"))
}

// keys presses keys: "\t" is Tab, "\r" Enter, "\x1b" Esc.
func (p *page) keys(keys string) {
	p.t.Helper()
	p.do(chromedp.KeyEvent(keys))
}

// enter types into the first input that a selector finds.
func (p *page) enter(selector, text string) {
	p.t.Helper()
	p.do(chromedp.SendKeys(selector, text))
}

// text is what a user reads.
func (p *page) text() string {
	text, err := chromedp.Run(p.ctx, chromedp.Evaluate[string]("document.body?.innerText ?? ''"))
	if err != nil {
		return err.Error()
	}
	return text
}

// mustFit fails the test if the page is wider than the window.
func (p *page) mustFit(what string) {
	p.t.Helper()
	// What follows the size of the window has done so after two frames.
	over := evaluate[int](p, `new Promise(then => requestAnimationFrame(() => requestAnimationFrame(() =>
		then(document.documentElement.scrollWidth - innerWidth))))`)
	if over > 0 {
		wide := evaluate[[]string](p, `[...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > innerWidth + 1 &&
			!e.closest(".scroll")).slice(0, 5).map(e => e.tagName + "." + e.className)`)
		p.t.Errorf("%s is %d pixels wider than the window: %q", what, over, wide)
	}
}

// violation is what axe finds.
type violation struct {
	ID    string   `json:"id"`
	Help  string   `json:"help"`
	Nodes []string `json:"nodes"`
}

// mustBeAccessible fails the test if axe finds anything on the page.
func (p *page) mustBeAccessible(what string) {
	p.t.Helper()
	if !evaluate[bool](p, "!!window.axe") {
		script, err := os.ReadFile(filepath.Join(dashboardSources(p.t), "node_modules/axe-core/axe.min.js"))
		if err != nil {
			p.t.Fatal(err)
		}
		evaluate[bool](p, string(script)+"; true")
	}
	found := evaluate[[]violation](p, `axe.run(document, {resultTypes: ["violations"]}).then(r => r.violations.map(v =>
		({id: v.id, help: v.help, nodes: v.nodes.slice(0, 5).map(n => n.html + " " + n.failureSummary)})))`)
	for _, v := range found {
		p.t.Errorf("%s: axe: %s: %s\n\t%s", what, v.ID, v.Help, strings.Join(v.Nodes, "\n\t"))
	}
}

// maxPicture bounds a picture of the documentation, in bytes.
const maxPicture = 150 << 10

// picture keeps what the page looks like for the documentation, with -update.
func (p *page) picture(name string) {
	p.t.Helper()
	b, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		p.t.Fatal(err)
	}
	if len(b) > maxPicture {
		p.t.Errorf("the picture %s has %d bytes, the limit is %d", name, len(b), maxPicture)
	}
	if *update {
		dir := filepath.FromSlash("../docs/images")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			p.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name+".png"), b, 0o644); err != nil {
			p.t.Fatal(err)
		}
	}
}

const dashboardFolder = "../node/ui/app"

// installed is a copy of the dashboard's sources with the packages that they need.
var installed = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "penstock-ui-")
	if err != nil {
		return "", err
	}
	dashboardCopy = dir
	for _, name := range []string{"package.json", "package-lock.json", "tsconfig.json", "build.mjs", "src"} {
		if out, err := exec.Command("cp", "-r", filepath.Join(filepath.FromSlash(dashboardFolder), name), dir).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%w\n%s", err, out)
		}
	}
	cmd := exec.Command("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm ci: %w\n%s", err, out)
	}
	return dir, nil
})

func dashboardSources(t testing.TB) string {
	t.Helper()
	requirePeer(t, "npm")
	dir, err := installed()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

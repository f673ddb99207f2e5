package top

import (
	"fmt"
	"os"
	"strings"

	"github.com/gdamore/tcell/v3"
	"github.com/gdamore/tcell/v3/color"
)

// styles say how a terminal shows what a cell means. Where NO_COLOR is set, or the
// terminal has no colours, the library leaves the colours out.
var styles = [...]tcell.Style{
	plain:    tcell.StyleDefault,
	bold:     tcell.StyleDefault.Bold(true),
	dim:      tcell.StyleDefault.Dim(true),
	selected: tcell.StyleDefault.Reverse(true),
	tab:      tcell.StyleDefault.Bold(true).Underline(true),
	good:     tcell.StyleDefault.Foreground(color.Green),
	warn:     tcell.StyleDefault.Foreground(color.Yellow),
	bad:      tcell.StyleDefault.Foreground(color.Red).Bold(true),
}

// keyNames are the names of keys that print nothing.
var keyNames = map[tcell.Key]key{
	tcell.KeyEnter: "Enter", tcell.KeyEsc: "Esc", tcell.KeyTab: "Tab", tcell.KeyBacktab: "Backtab",
	tcell.KeyBackspace: "Backspace", tcell.KeyBackspace2: "Backspace", tcell.KeyCtrlC: "Ctrl-C", tcell.KeyCtrlU: "Ctrl-U",
	tcell.KeyCtrlB: "Ctrl-B", tcell.KeyCtrlF: "Ctrl-F", tcell.KeyUp: "Up", tcell.KeyDown: "Down", tcell.KeyLeft: "Left",
	tcell.KeyRight: "Right", tcell.KeyHome: "Home", tcell.KeyEnd: "End", tcell.KeyPgUp: "PgUp", tcell.KeyPgDn: "PgDn",
}

// openTerminal takes over the terminal. It asks the terminal nothing, so one that
// answers no questions does not delay anything.
func openTerminal() (tcell.Screen, error) {
	tcell.SetEncodingFallback(tcell.EncodingFallbackASCII) // a locale that the library does not know
	t, err := tcell.NewScreen(tcell.OptNegotiation(false))
	if err == nil {
		err = t.Init()
	}
	if err != nil {
		return nil, fmt.Errorf("the terminal cannot be used: %w; --once prints one sample as lines", err)
	}
	t.HideCursor()
	return t, nil
}

// show puts a picture on the terminal, which sends what has changed.
func show(t tcell.Screen, s *screen) {
	for y := range s.h {
		for x := range s.w {
			c := s.cells[y*s.w+x]
			t.SetContent(x, y, c.r, nil, styles[c.style])
		}
	}
	t.Show()
}

// message returns the message of an event; nil: it says nothing to the model.
func message(ev tcell.Event) any {
	switch ev := ev.(type) {
	case *tcell.EventResize:
		w, h := ev.Size()
		return size{w, h}
	case *tcell.EventKey:
		if name, ok := keyNames[ev.Key()]; ok {
			return name
		}
		if ev.Key() == tcell.KeyRune && ev.Modifiers()&(tcell.ModAlt|tcell.ModCtrl) == 0 {
			return key(ev.Str())
		}
	}
	return nil
}

// utf8Locale reports whether the locale says that the terminal shows UTF-8.
func utf8Locale() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := strings.ToLower(os.Getenv(name)); v != "" {
			return strings.Contains(v, "utf-8") || strings.Contains(v, "utf8")
		}
	}
	return false
}

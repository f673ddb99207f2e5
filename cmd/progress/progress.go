// Package progress shows on a terminal how far a command is that takes longer than a
// second. It writes to standard error alone, and nothing at all if that is no terminal:
// a log is no place for a bar.
//
//	bar := progress.Start(os.Stderr, "saving penstock.snap", progress.Ends)
//	defer bar.Stop()
//	bar.Set(done, total, "12 MB of 30 MB")
//
// Its line is gone when the command goes on to print, fails, or is interrupted.
package progress

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/term"
)

// When the bar appears, and how often it is drawn.
const (
	patience = time.Second
	interval = 200 * time.Millisecond
)

// Signals says what SIGINT and SIGTERM do to the command.
type Signals bool

// The values of Signals.
const (
	Ends    Signals = false // they end it: the bar removes its line first
	Handled Signals = true  // the command ends by itself, and stops the bar
)

// Bar is a line that shows how far something is. A nil Bar shows nothing.
type Bar struct {
	out   io.Writer
	width func() int
	what  string
	began time.Time

	mu          sync.Mutex
	done, total int64
	text        string
	shown       bool

	stop    chan struct{}
	stopped sync.WaitGroup
}

// Start begins to show what is being done, after a second. It returns nil if w is no
// terminal.
func Start(w io.Writer, what string, signals Signals) *Bar {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return start(w, func() int {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
		return 80
	}, what, signals)
}

func start(w io.Writer, width func() int, what string, signals Signals) *Bar {
	b := &Bar{out: w, width: width, what: what, began: time.Now(), stop: make(chan struct{})}
	ended := make(chan os.Signal, 1)
	if signals == Ends {
		signal.Notify(ended, os.Interrupt, syscall.SIGTERM)
	}
	b.stopped.Go(func() { b.run(ended) })
	return b
}

// Set says how far it is. total 0: that is not known, and only the text is shown.
func (b *Bar) Set(done, total int64, text string) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.done, b.total, b.text = done, total, text
}

// Stop removes the line. It may be called more than once.
func (b *Bar) Stop() {
	if b == nil {
		return
	}
	b.mu.Lock()
	select {
	case <-b.stop:
	default:
		close(b.stop)
	}
	b.mu.Unlock()
	b.stopped.Wait()
}

func (b *Bar) run(ended chan os.Signal) {
	defer signal.Stop(ended)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			b.draw()
			timer.Reset(interval)
		case <-b.stop:
			b.clear()
			return
		case s := <-ended:
			b.clear()
			signal.Stop(ended)
			_ = syscall.Kill(os.Getpid(), s.(syscall.Signal)) // as if it had not been caught
			return
		}
	}
}

func (b *Bar) draw() {
	b.mu.Lock()
	line := line(b.what, b.text, b.done, b.total, time.Since(b.began), b.width()-1)
	b.mu.Unlock()
	fmt.Fprint(b.out, "\r"+line+"\x1b[K")
	b.shown = true
}

func (b *Bar) clear() {
	if b.shown {
		fmt.Fprint(b.out, "\r\x1b[K")
	}
}

// barWidth is the width of the bar between its brackets.
const barWidth = 20

// line is what a bar of at most width characters shows.
func line(what, text string, done, total int64, passed time.Duration, width int) string {
	parts := []string{what}
	if total > 0 {
		full := int(barWidth * max(0, min(done, total)) / total)
		parts = append(parts, "["+strings.Repeat("=", full)+strings.Repeat(" ", barWidth-full)+"]")
	}
	if text != "" {
		parts = append(parts, text)
	}
	s := strings.Join(append(parts, passed.Round(time.Second).String()), "  ")
	if len(s) > width {
		s = s[:max(width, 0)]
	}
	return s
}

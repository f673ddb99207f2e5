package top

// keysHelp are the lines of the help, in the order of the screen.
var keysHelp = [][2]string{
	{"1 - 6, Tab", "services, nodes, listeners, connections, Kafka, problems"},
	{"Up Down j k", "select a row; also PgUp, PgDn, Home, End"},
	{"Enter", "open it: service, endpoint, connection, decision"},
	{"Esc", "back; then clear the filter, then all nodes"},
	{"n", "numbers of the next node; after the last, of all"},
	{"Left Right", "sort by the column before or after; also < >"},
	{"r", "reverse the order"},
	{"/", "show rows with this text; Enter keeps it, Esc drops it"},
	{"c", "connections of the selected service, listener or endpoint"},
	{"e", "of connections: open ones, ended ones, failed ones"},
	{"t", "pictures of bytes, or of new connections"},
	{"p, Space", "pause, and go on"},
	{"?", "this help"},
	{"q, Ctrl-C", "quit"},
}

// press does what a key says.
func (m *Model) press(k key) {
	switch {
	case k == "Ctrl-C":
		m.done = true
	case m.help:
		m.help = false
	case m.typing:
		m.typeFilter(k)
	case m.moveTo(k):
	default:
		m.command(k)
	}
}

// typeFilter edits the filter.
func (m *Model) typeFilter(k key) {
	l := m.level()
	switch {
	case k == "Enter":
		m.typing = false
	case k == "Esc":
		m.typing, l.filter = false, m.before
	case k == "Backspace":
		l.filter = l.filter[:max(0, len(l.filter)-1)]
	case k == "Ctrl-U":
		l.filter = ""
	case len(k) == 1 && k[0] >= ' ' && k[0] <= '~' && len(l.filter) < maxFilter:
		l.filter += string(k)
	}
}

// maxFilter bounds the text of a filter.
const maxFilter = 60

// moveTo moves the selection; false: the key is not for that.
func (m *Model) moveTo(k key) bool {
	const all = 1 << 30
	page := max(m.size.h-10, 1)
	by := map[key]int{
		"Up": -1, "k": -1, "Down": 1, "j": 1, "PgUp": -page, "PgDn": page, "Ctrl-B": -page, "Ctrl-F": page,
		"Home": -all, "g": -all, "End": all, "G": all,
	}[k]
	if by == 0 {
		return false
	}
	l := m.level()
	if l.view == viewTrace { // text scrolls
		l.top = max(0, min(l.top+by, all))
		return true
	}
	t := m.table()
	t.arrange(&l.place)
	t.settle(&l.place, page)
	t.move(&l.place, by)
	return true
}

// command does what the keys of the help say.
func (m *Model) command(k key) {
	l := m.level()
	if len(k) == 1 && k[0] >= '1' && int(k[0]-'1') < len(rootViews) {
		m.show(view(k[0] - '1'))
		return
	}
	switch k {
	case "q":
		m.done = true
	case "?", "h":
		m.help = true
	case "Tab":
		m.show((m.path[0].view + 1) % view(len(rootViews)))
	case "Backtab":
		m.show((m.path[0].view + view(len(rootViews)) - 1) % view(len(rootViews)))
	case "p", " ":
		m.paused = !m.paused
		if !m.paused {
			m.refill() // what has passed meanwhile is with the nodes
		}
	case "n":
		m.nextNode()
	case "t":
		m.fresh = !m.fresh
	case "Esc":
		m.escape()
	case "/":
		if l.view != viewTrace {
			m.typing, m.before = true, l.filter
		}
	case "Enter", "c":
		m.enter(k == "c")
	case "r", "Left", "Right", "<", ">":
		m.sort(k)
	case "e":
		if l.view == viewConnections && !m.withoutList {
			l.ends = (l.ends + 1) % allEnds
			m.connections = nil
		}
	}
}

// escape goes back, drops the filter, or shows all nodes again: whichever comes first.
func (m *Model) escape() {
	l := m.level()
	switch {
	case m.back():
	case l.filter != "":
		l.filter = ""
	default:
		m.setNode("")
	}
}

// sort changes the order of the rows.
func (m *Model) sort(k key) {
	l := m.level()
	if l.view == viewTrace {
		return
	}
	step := map[key]int{"Left": -1, "<": -1, "Right": 1, ">": 1}[k]
	if step == 0 {
		l.reverse = !l.reverse
		return
	}
	m.table().sortBy(&l.place, step)
}

// enter opens the selected row, or its connections.
func (m *Model) enter(connections bool) {
	l := m.level()
	if l.view == viewTrace {
		return
	}
	t := m.table()
	t.arrange(&l.place)
	t.settle(&l.place, len(t.rows))
	if len(t.rows) == 0 {
		return
	}
	r := &t.rows[l.at]
	l.selected = r.id
	switch {
	case connections && r.connections != nil:
		m.open(r.connections)
	case !connections && r.open != nil:
		r.open(m)
	}
}

package mysqltest

import "penstock/mysql/wire"

// Step is a moment at which a server may misbehave.
type Step int

// The steps.
const (
	OnConnect    Step = iota // before the greeting
	OnTLS                    // a request for TLS has been read
	OnLogin                  // a login has been read
	OnAuth                   // an answer to a switch or to more data has been read
	OnVerdict                // before OK or the error of a login
	OnCommand                // a command has been read; SHOW and SET SESSION_STATES too
	OnShowStates             // SHOW SESSION_STATES has been read and is possible
	OnSetStates              // SET SESSION_STATES has been read
	OnToken                  // a login with a token has been read
	OnFile                   // a packet of a client's file has been read; what the hook sends is the answer to the file
)

// Event is what a Hook is told.
type Event struct {
	Step    Step
	Conn    uint32 // the connection's ID
	User    string
	Command wire.Command // at OnCommand, OnShowStates, OnSetStates and OnFile
	Payload []byte       // of the packet, with the command byte; must not be kept
}

// A Hook decides what a server does at a step. It is called on the connection's
// goroutine, and may block.
type Hook func(e Event) Action

// Action is what a server does in place of its duty. The zero value is its duty.
// The fields take effect in this order.
type Action struct {
	Wait   <-chan struct{} // first, wait for its end (or the server's)
	Silent bool            // do nothing, until the peer closes
	Raw    []byte          // send these bytes as they are
	// Packets are sent as payloads, framed and numbered correctly.
	Packets [][]byte
	Error   *wire.Error  // send this; the connection ends, except at commands
	States  *wire.States // at OnShowStates: answer with these
	Close   bool         // close the connection
}

// replaces reports whether the server's duty is left undone.
func (a *Action) replaces() bool {
	return a.Silent || a.Raw != nil || a.Packets != nil || a.Error != nil || a.Close
}

// step runs the hook. replaced reports that the server's duty is left undone.
func (c *conn) step(e Event) (a Action, replaced bool, err error) {
	c.server.mu.Lock()
	hook := c.server.hook
	c.server.mu.Unlock()
	if hook == nil {
		return Action{}, false, nil
	}
	e.Conn, e.User = c.id, c.user
	a = hook(e)
	if a.Wait != nil {
		select {
		case <-a.Wait:
		case <-c.server.done:
			return a, true, errEnded
		}
	}
	if !a.replaces() {
		return a, false, nil
	}
	if a.Silent {
		return a, true, c.drain()
	}
	if a.Raw != nil {
		if err := c.flush(); err != nil {
			return a, true, err
		}
		if _, err := c.net.Write(a.Raw); err != nil {
			return a, true, err
		}
	}
	for _, p := range a.Packets {
		c.write(p)
	}
	if a.Error != nil {
		c.writeError(a.Error)
	}
	err = c.flush()
	if a.Close || a.Error != nil && !e.Step.atCommand() {
		err = errEnded
	}
	return a, true, err
}

func (s Step) atCommand() bool {
	return s == OnCommand || s == OnShowStates || s == OnSetStates || s == OnFile
}

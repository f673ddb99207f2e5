package node

import (
	"net"
	"os"
)

// notifySystemd sends the node's state ("READY=1") to systemd if it started the
// process with Type=notify (sd_notify(3)). Errors are ignored.
func notifySystemd(state string) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = conn.Write([]byte(state))
}

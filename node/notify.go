package node

import (
	"net"
	"os"
)

// notifySystemd tells systemd about the node's state ("READY=1"), where it is
// the one that started the process with Type=notify (sd_notify(3)). Nobody
// listening is no error.
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

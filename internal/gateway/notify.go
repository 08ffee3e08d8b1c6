package gateway

import (
	"fmt"
	"net"
	"os"
)

// Messages to the service manager, see sd_notify(3).
const (
	notifyReady    = "READY=1"
	notifyStopping = "STOPPING=1"
)

// notify sends a message to the service manager of a unit of type notify. Without one it does
// nothing.
func notify(message string) error {
	socket := os.Getenv("NOTIFY_SOCKET")
	if socket == "" {
		return nil
	}
	c, err := net.Dial("unixgram", socket) // @ begins an abstract name, as in the variable
	if err != nil {
		return fmt.Errorf("notifying the service manager: %w", err)
	}
	defer c.Close()
	if _, err := c.Write([]byte(message)); err != nil {
		return fmt.Errorf("notifying the service manager: %w", err)
	}
	return nil
}

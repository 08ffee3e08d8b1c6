// Package gatewaytest runs the gateway's program for tests.
package gatewaytest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice.dev/sluice/test/prereq"
)

// patience is how long the gateway may take to get ready, and to end.
const patience = time.Minute

// logLines is how much of the gateway's log a failed test shows.
const logLines = 20

// Start runs a gateway's program with a configuration file of the given contents, and returns when
// it is ready by the page of its admin address. When the test ends, it ends the gateway by SIGTERM;
// an exit status other than 0 fails the test.
func Start(t testing.TB, program, admin, config string) {
	t.Helper()
	if os.Geteuid() != 0 {
		prereq.Missing(t, "the gateway has to be root to open files by handle")
	}
	file := filepath.Join(t.TempDir(), "gateway.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	cmd := exec.Command(program, "--config", file)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var exit error // valid once ended is closed
	ended := make(chan struct{})
	go func() {
		exit = cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(patience):
			_ = cmd.Process.Kill()
			<-ended
			t.Errorf("the gateway did not end within %v of SIGTERM", patience)
		}
		if exit != nil {
			t.Errorf("the gateway ended with %v", exit)
		}
		if t.Failed() {
			lines := strings.Split(log.String(), "\n")
			t.Logf("the end of the gateway's log:\n%s", strings.Join(lines[max(0, len(lines)-logLines):], "\n"))
		}
	})
	limit := time.After(patience)
	for err := Get(admin, "/readyz"); err != nil; err = Get(admin, "/readyz") {
		select {
		case <-ended:
			t.Fatalf("the gateway ended before it was ready: %v", exit)
		case <-limit:
			t.Fatalf("the gateway is not ready after %v: %v", patience, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Get requests a page of an admin address, on a connection of its own. A status other than 200 is
// an error.
func Get(admin, page string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	rq, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+page, nil)
	if err != nil {
		return err
	}
	rq.Close = true
	re, err := http.DefaultClient.Do(rq)
	if err != nil {
		return err
	}
	defer re.Body.Close()
	body, err := io.ReadAll(re.Body)
	if err != nil {
		return err
	}
	if re.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", page, re.Status, body)
	}
	return nil
}

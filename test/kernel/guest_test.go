//go:build kernel

package kernel

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

var only = flag.String("only", "", "make only checks of the guests' scripts whose names this `regular expression` matches")

// guest runs a script of testdata.
type guest struct {
	cmd    *exec.Cmd
	out    string // the guest's /run/out
	lines  chan string
	answer func(t *testing.T, words []string) error
	ended  bool // the script printed scriptEnded
	// excused matches the kernel's messages that are expected; nil: none.
	excused *regexp.Regexp

	scriptEnded time.Time
}

// Limits for waiting, far above the durations seen on a quiet machine: stall is the longest silence
// of a guest, patience the longest wait for an action that usually takes seconds.
const (
	stall    = 10 * time.Minute
	patience = 5 * time.Minute
)

// boot starts a guest with a kernel of that series. It ends after limit, with -full after three
// times that: a script has more to do then, and a check that hangs ends earlier, by stall. The
// options are those of hack/vm/run; answer acts on the script's requests.
func boot(t *testing.T, kernel string, limit time.Duration, script string, options []string, answer func(*testing.T, []string) error) *guest {
	t.Helper()
	g := &guest{out: folder(t, "guest"), lines: make(chan string), answer: answer}
	if *full {
		limit *= 3
	}
	testdata := filepath.Join(root, "test/kernel/testdata")
	args := append([]string{"-k", kernel, "-t", fmt.Sprint(int(limit.Seconds())), "-o", g.out,
		"-e", "TESTDATA=" + testdata, "-e", "PROBE=" + build(t).probe, "-e", "ONLY=" + *only}, options...)
	g.cmd = exec.Command(filepath.Join(root, "hack/vm/run"), append(args, filepath.Join(testdata, script))...)
	g.cmd.Stderr = os.Stderr
	said, err := g.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(g.lines)
		for s := bufio.NewScanner(said); s.Scan(); {
			g.lines <- s.Text()
		}
	}()
	t.Cleanup(g.end)
	return g
}

// end stops a guest that still runs.
func (g *guest) end() {
	if g.cmd.ProcessState != nil {
		return
	}
	_ = g.cmd.Process.Signal(syscall.SIGTERM) // QEMU's end
	for range g.lines {
	}
	_ = g.cmd.Wait()
}

// next returns the next line. ok is false at the end of the script's output, and when it stalls.
func (g *guest) next(t *testing.T) (line string, ok bool) {
	select {
	case line, ok = <-g.lines:
		return strings.TrimRight(line, "\r"), ok
	case <-time.After(stall):
		t.Errorf("the guest has been silent for %v", stall)
		return "", false
	}
}

// follow makes a subtest of each check and returns at the end of the script.
func (g *guest) follow(t *testing.T) {
	for {
		line, ok := g.next(t)
		if !ok {
			break
		}
		name, isCheck := strings.CutPrefix(line, "run ")
		switch {
		case isCheck:
			t.Run(name, func(t *testing.T) { g.check(t, name) })
		case line == "done":
			g.ended, g.scriptEnded = true, time.Now()
		case !g.ask(t, line):
			t.Log(line)
		}
	}
	g.finish(t)
}

// check follows the script to the end of one check.
func (g *guest) check(t *testing.T, name string) {
	for {
		line, ok := g.next(t)
		switch {
		case !ok:
			t.Fatal("the guest was lost in this check")
		case line == "pass "+name:
			return
		case line == "fail "+name:
			t.Fail()
			return
		case !g.ask(t, line):
			t.Log(line)
		}
	}
}

// ask acts on a request of the script. It returns false for a line that is none.
func (g *guest) ask(t *testing.T, line string) bool {
	words := strings.Fields(line)
	if len(words) < 2 || words[0] != "ask" {
		return false
	}
	answer := "ok"
	if err := g.answer(t, words[1:]); err != nil {
		answer = err.Error()
	}
	path := filepath.Join(g.out, "answer")
	if err := errors.Join(os.WriteFile(path+".new", []byte(answer+"\n"), 0o644), os.Rename(path+".new", path)); err != nil {
		t.Fatal(err)
	}
	return true
}

var kernelTrouble = regexp.MustCompile(`BUG:|Oops|WARNING:|blocked for more than|RPC:.*(bad|fail)|rpcrdma:.*(bad|fail)|NFS:.*(fail|lost)|Call Trace`)

// finish checks how the guest ended.
func (g *guest) finish(t *testing.T) {
	g.end()
	if status := g.cmd.ProcessState.ExitCode(); status != 0 {
		t.Errorf("hack/vm/run ended with status %d", status)
	} else if !g.ended {
		t.Error("the guest's script ended before its last line")
	}
	console, err := os.ReadFile(filepath.Join(g.out, ".vm/console.log"))
	if err != nil {
		t.Error(err)
	}
	for line := range bytes.Lines(console) {
		if kernelTrouble.Match(line) && (g.excused == nil || !g.excused.Match(line)) {
			t.Errorf("the guest's kernel says: %s", bytes.TrimSpace(line))
		}
	}
}

// read returns a file that the guest left in /run/out.
func (g *guest) read(name string) (string, error) {
	b, err := os.ReadFile(filepath.Join(g.out, name))
	return string(b), err
}

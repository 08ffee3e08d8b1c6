// Package browser drives a Chromium without a window, by the DevTools protocol over a pipe.
package browser

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
)

// programs are the names of Chromium, the smallest first.
var programs = []string{"chromium-headless-shell", "chromium", "google-chrome"}

// Browser is a running Chromium.
type Browser struct {
	cmd  *exec.Cmd
	dir  string
	in   *os.File
	log  bytes.Buffer
	done chan struct{} // closed when nothing more comes from it

	mu      sync.Mutex
	id      int
	answers map[int]chan message
	pages   map[string]*Page // by session
}

// message is a command, an answer or an event.
type message struct {
	ID     int             `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
	Session string `json:"sessionId,omitempty"`
}

// Start starts a browser with an empty profile. It ends with ctx, or by Close.
func Start(ctx context.Context) (*Browser, error) {
	program := ""
	for _, p := range programs {
		if at, err := exec.LookPath(p); err == nil {
			program = at
			break
		}
	}
	if program == "" {
		return nil, fmt.Errorf("none of %s is installed: hack/deps page installs one", strings.Join(programs, ", "))
	}
	dir, err := os.MkdirTemp("", "browser")
	if err != nil {
		return nil, err
	}
	theirIn, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	b := &Browser{dir: dir, in: in, done: make(chan struct{}), answers: map[int]chan message{}, pages: map[string]*Page{}}
	b.cmd = exec.CommandContext(ctx, program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--remote-debugging-pipe", "--user-data-dir="+dir)
	b.cmd.ExtraFiles = []*os.File{theirIn, theirOut} // descriptors 3 and 4
	b.cmd.Stderr = &b.log
	err = b.cmd.Start()
	_, _ = theirIn.Close(), theirOut.Close()
	if err != nil {
		return nil, errors.Join(err, in.Close(), out.Close(), os.RemoveAll(dir))
	}
	go b.read(out)
	return b, nil
}

// Close ends the browser.
func (b *Browser) Close() error {
	_ = b.in.Close()
	_ = b.cmd.Process.Kill()
	_ = b.cmd.Wait()
	<-b.done
	return os.RemoveAll(b.dir)
}

func (b *Browser) read(out *os.File) {
	defer close(b.done)
	defer out.Close()
	for r := bufio.NewReader(out); ; {
		text, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(bytes.TrimSuffix(text, []byte{0}), &m) != nil {
			return
		}
		b.mu.Lock()
		if c := b.answers[m.ID]; c != nil {
			delete(b.answers, m.ID)
			c <- m
		} else if p := b.pages[m.Session]; p != nil {
			p.event(&m)
		}
		b.mu.Unlock()
	}
}

// call sends a command, and decodes the answer to result, if that is not nil.
func (b *Browser) call(ctx context.Context, session, method string, params, result any) error {
	p, err := json.Marshal(params)
	if err != nil {
		return err
	}
	answer := make(chan message, 1)
	b.mu.Lock()
	b.id++
	m := message{ID: b.id, Method: method, Params: p, Session: session}
	b.answers[m.ID] = answer
	text, err := json.Marshal(m)
	if err == nil {
		_, err = b.in.Write(append(text, 0))
	}
	b.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	select {
	case m = <-answer:
	case <-b.done:
		return fmt.Errorf("%s: the browser has ended: %s", method, b.log.String())
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", method, ctx.Err())
	}
	if m.Error != nil {
		return fmt.Errorf("%s: %s", method, m.Error.Message)
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(m.Result, result)
}

// View is a window.
type View struct {
	Width, Height int // in pixels
	Dark          bool
}

// Page is an open page.
type Page struct {
	b       *Browser
	session string
	loaded  chan struct{} // gets one at the first load

	// guarded by b.mu
	requests, errors []string
}

// Open opens a URL, and returns when it has loaded.
func (b *Browser) Open(ctx context.Context, url string, v View) (*Page, error) {
	var target struct{ TargetID string }
	if err := b.call(ctx, "", "Target.createTarget", map[string]any{"url": "about:blank"}, &target); err != nil {
		return nil, err
	}
	var attached struct{ SessionID string }
	if err := b.call(ctx, "", "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached); err != nil {
		return nil, err
	}
	p := &Page{b: b, session: attached.SessionID, loaded: make(chan struct{}, 1)}
	b.mu.Lock()
	b.pages[p.session] = p
	b.mu.Unlock()
	scheme := "light"
	if v.Dark {
		scheme = "dark"
	}
	for _, c := range []struct {
		method string
		params any
	}{
		{"Page.enable", struct{}{}},
		{"Network.enable", struct{}{}},
		{"Runtime.enable", struct{}{}},
		{"Log.enable", struct{}{}},
		{"Emulation.setDeviceMetricsOverride", map[string]any{"width": v.Width, "height": v.Height, "deviceScaleFactor": 1, "mobile": false}},
		{"Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}},
		{"Page.navigate", map[string]any{"url": url}},
	} {
		if err := b.call(ctx, p.session, c.method, c.params, nil); err != nil {
			return nil, err
		}
	}
	select {
	case <-p.loaded:
		return p, nil
	case <-b.done:
		return nil, fmt.Errorf("%s: the browser has ended: %s", url, b.log.String())
	case <-ctx.Done():
		return nil, fmt.Errorf("%s: %w", url, ctx.Err())
	}
}

// event handles an event, with b.mu held.
func (p *Page) event(m *message) {
	var e struct {
		Request          struct{ URL string }
		Entry            struct{ Level, Text, URL string }
		ExceptionDetails struct{ Text string }
		Type             string
	}
	if json.Unmarshal(m.Params, &e) != nil {
		return
	}
	switch m.Method {
	case "Network.requestWillBeSent":
		p.requests = append(p.requests, e.Request.URL)
	case "Log.entryAdded":
		p.errors = append(p.errors, strings.TrimSpace(e.Entry.Level+": "+e.Entry.Text+" "+e.Entry.URL))
	case "Runtime.exceptionThrown":
		p.errors = append(p.errors, e.ExceptionDetails.Text)
	case "Runtime.consoleAPICalled":
		p.errors = append(p.errors, "console: "+e.Type)
	case "Page.loadEventFired":
		select {
		case p.loaded <- struct{}{}:
		default:
		}
	}
}

// Requests returns the URLs that the page has requested.
func (p *Page) Requests() []string {
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	return append([]string(nil), p.requests...)
}

// Errors returns errors of scripts, messages on the console, and violations of the page's policy.
func (p *Page) Errors() []string {
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	return append([]string(nil), p.errors...)
}

// Eval evaluates a JavaScript expression, and decodes its value to out. It starts over when the
// page reloads in the middle.
func (p *Page) Eval(ctx context.Context, expression string, out any) error {
	for {
		var r struct {
			Result           struct{ Value json.RawMessage }
			ExceptionDetails *struct {
				Text      string
				Exception struct{ Description string }
			}
		}
		err := p.b.call(ctx, p.session, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true}, &r)
		switch {
		case err != nil && ctx.Err() == nil && strings.Contains(err.Error(), "context"):
			continue
		case err != nil:
			return err
		case r.ExceptionDetails != nil:
			return fmt.Errorf("%s: %s %s", expression, r.ExceptionDetails.Text, r.ExceptionDetails.Exception.Description)
		}
		return json.Unmarshal(r.Result.Value, out)
	}
}

// Screenshot returns a PNG of the window.
func (p *Page) Screenshot(ctx context.Context) ([]byte, error) {
	var r struct{ Data string }
	if err := p.b.call(ctx, p.session, "Page.captureScreenshot", map[string]any{"format": "png", "optimizeForSpeed": false}, &r); err != nil {
		return nil, err
	}
	return io.ReadAll(base64.NewDecoder(base64.StdEncoding, strings.NewReader(r.Data)))
}

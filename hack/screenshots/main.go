// Command screenshots makes the pictures in docs/screenshots: the gateway's pages, and the output
// of sluicectl top, of a gateway with clients at work on this machine.
//
//	go run ./hack/screenshots [-out DIR] [-work TIME]
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"html"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"sluice.dev/sluice/hack/screenshots/browser"
	"sluice.dev/sluice/internal/sluicectl"
)

// maxSize bounds a picture, in bytes.
const maxSize = 150 << 10

func main() {
	log.SetFlags(0)
	log.SetPrefix("hack/screenshots: ")
	out := flag.String("out", "docs/screenshots", "folder to write to")
	work := flag.Duration("work", 10*time.Minute, "time that the clients work before the pictures; the charts cover 10 min")
	version := flag.String("version", "development", "version of the gateway, as its page shows it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *out, *version, *work)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out, version string, work time.Duration) (err error) {
	s, err := start(version)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	b, err := browser.Start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	select {
	case <-time.After(work):
	case <-ctx.Done():
		return ctx.Err()
	}
	var top bytes.Buffer
	if code := sluicectl.Run(ctx, version, []string{"top", "-n", "1", "--interval", "5s", "--admin", s.g.Admin()}, sluicectl.Streams{In: strings.NewReader(""), Out: &top, Err: &top}); code != 0 {
		return fmt.Errorf("sluicectl top: %s", top.String())
	}
	terminal := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprintf(w, terminalPage, html.EscapeString("$ sluicectl top\n"+top.String()))
	}))
	defer terminal.Close()
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	page := "http://" + s.g.Admin()
	for _, shot := range []struct {
		name, url string
		view      browser.View
	}{
		{"gateway.png", page + "/", browser.View{Width: 1280}},
		{"export.png", page + "/exports/home", browser.View{Width: 1280}},
		{"export-dark.png", page + "/exports/home", browser.View{Width: 1280, Dark: true}},
		{"export-narrow.png", page + "/exports/home", browser.View{Width: 390}},
		{"top.png", terminal.URL, browser.View{Width: 820}},
	} {
		picture, err := take(ctx, b, shot.url, shot.view)
		if err != nil {
			return fmt.Errorf("%s: %w", shot.name, err)
		}
		if len(picture) > maxSize {
			return fmt.Errorf("%s has %d bytes, want %d at most", shot.name, len(picture), maxSize)
		}
		if err := os.WriteFile(filepath.Join(out, shot.name), picture, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// take returns a picture of a whole page: it opens the page twice, the second time in full height.
func take(ctx context.Context, b *browser.Browser, url string, v browser.View) ([]byte, error) {
	v.Height = 200
	p, err := b.Open(ctx, url, v)
	if err != nil {
		return nil, err
	}
	if err := p.Eval(ctx, "Math.ceil(document.documentElement.getBoundingClientRect().height)", &v.Height); err != nil {
		return nil, err
	}
	if p, err = b.Open(ctx, url, v); err != nil {
		return nil, err
	}
	return p.Screenshot(ctx)
}

// terminalPage is a page for the output of a program.
const terminalPage = `<!DOCTYPE html>
<meta charset="utf-8">
<style>
body { margin: 0; background: #16181d; }
pre { margin: 0; padding: 14px 16px; color: #d7dae0; font: 13px/1.35 "DejaVu Sans Mono", monospace; }
</style>
<pre>%s</pre>
`

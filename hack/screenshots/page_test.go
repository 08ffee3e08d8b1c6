//go:build page

package main

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/hack/screenshots/browser"
)

// patience bounds each wait.
const patience = 2 * time.Minute

// look is a script that returns findings about a page, and none while the page reloads.
const look = `(() => {
  if (document.readyState !== 'complete') return {Points: 0};
  const luminance = c => {
    const [r, g, b] = c.match(/[\d.]+/g).slice(0, 3).map(v => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4 });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const back = luminance(getComputedStyle(document.documentElement).backgroundColor);
  const pale = [];
  for (const e of document.querySelectorAll('h1, h2, a, td, th, dt, dd, p, pre, .good, .bad, .dim, .key0, .key1')) {
    const front = luminance(getComputedStyle(e).color);
    const contrast = (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
    if (contrast < 4.5) pale.push(e.tagName + '.' + e.className + ' ' + contrast.toFixed(1));
  }
  const drawings = [...document.querySelectorAll('svg')].map(s => s.getBoundingClientRect());
  return {
    Text: document.body.innerText,
    Overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    Drawings: drawings.filter(r => r.width > 50 && r.height > 10).length,
    Beyond: [...document.querySelectorAll('figure svg')].filter(s => s.getBoundingClientRect().right > innerWidth).length,
    Points: Math.min(...[...document.querySelectorAll('polyline')].map(p => p.points.length)),
    Dark: back < 0.2,
    Pale: [...new Set(pale)],
    Scripts: document.scripts.length,
  };
})()`

type findings struct {
	Text                               string
	Overflow, Drawings, Beyond, Points int
	Dark                               bool
	Pale                               []string
	Scripts                            int
}

// TestPage opens the gateway's pages in Chromium, wide and narrow, light and dark. Texts and
// drawings are there and readable, nothing is wider than the window, and nothing comes from
// elsewhere.
func TestPage(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience)
	defer cancel()
	s, err := start("v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}()
	b, err := browser.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	home := "http://" + s.g.Admin()
	for _, c := range []struct {
		path  string
		least int // drawings
		texts []string
	}{
		{"/", 2, []string{"Sluice gateway", "v1.2.3", "home", "scratch", "healthy", "ready", "Errors now", "archive: ", "no such file or directory", "calls/s"}},
		{"/exports/home", 3, []string{"Throughput", "Calls", "Latency of", "127.0.0.1:", "credits granted", "Clients", "last 10 min"}},
	} {
		for _, v := range []browser.View{{Width: 1280, Height: 900}, {Width: 1280, Height: 900, Dark: true}, {Width: 390, Height: 800}, {Width: 390, Height: 800, Dark: true}} {
			p, err := b.Open(ctx, home+c.path, v)
			if err != nil {
				t.Fatal(err)
			}
			var f findings
			for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
				if err := p.Eval(ctx, look, &f); err != nil {
					t.Fatal(err)
				}
				if f.Points >= 2 { // the page reloads itself
					break
				}
				if time.Now().After(end) {
					t.Fatalf("%s: the charts have %d points after %v:\n%s", c.path, f.Points, patience, f.Text)
				}
			}
			for _, text := range c.texts {
				if !strings.Contains(f.Text, text) {
					t.Errorf("%s %+v: no %q in\n%s", c.path, v, text, f.Text)
				}
			}
			if f.Drawings < c.least || f.Overflow > 0 || f.Beyond > 0 || f.Dark != v.Dark || len(f.Pale) > 0 || f.Scripts > 0 {
				f.Text = ""
				t.Errorf("%s %+v: %+v", c.path, v, f)
			}
			if errors := p.Errors(); len(errors) > 0 {
				t.Errorf("%s %+v: %q", c.path, v, errors)
			}
			requests := p.Requests()
			for _, r := range requests {
				if u, err := url.Parse(r); err != nil || u.Host != s.g.Admin() {
					t.Errorf("%s %+v: requests %s", c.path, v, r)
				}
			}
			if !slices.Contains(requests, home+c.path) || !slices.Contains(requests, home+"/style.css") {
				t.Errorf("%s %+v: requests %q alone", c.path, v, requests)
			}
		}
	}
}

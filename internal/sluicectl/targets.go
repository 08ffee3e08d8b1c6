package sluicectl

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/nfs3"
)

// with runs f on a mounted target, and connects again when the connection ends. verb names the
// action in errors.
func (a *app) with(ctx context.Context, rawURL, verb string, f func(context.Context, *session) error) error {
	return a.mounted(ctx, rawURL, verb, true, f)
}

func (a *app) mounted(ctx context.Context, rawURL, verb string, reconnect bool, f func(context.Context, *session) error) error {
	t, err := parseTarget(rawURL)
	if err != nil {
		return err
	}
	s, err := a.mount(ctx, t, reconnect)
	if err != nil {
		return err
	}
	defer s.close()
	if err := f(ctx, s); err != nil {
		return cannot(err, "%s %s", verb, t)
	}
	return nil
}

// sessions are connections to several servers, one for each.
type sessions struct {
	app  *app
	open map[string]*session
}

func (a *app) newSessions() *sessions { return &sessions{app: a, open: map[string]*session{}} }

// at returns a session with t as its target.
func (x *sessions) at(ctx context.Context, t *target) (*session, error) {
	s := x.open[t.server()]
	if s == nil {
		var err error
		if s, err = x.app.mount(ctx, t, true); err != nil {
			return nil, err
		}
		x.open[t.server()] = s
	}
	return s.at(t), nil
}

func (x *sessions) close() {
	for _, s := range x.open {
		s.close()
	}
}

// at returns the session with another target on its server. Only s is closed.
func (s *session) at(t *target) *session {
	other := *s
	other.target = t
	return &other
}

// each runs f for each target of URLs, and goes on after failures. verb names the action in errors.
func (a *app) each(ctx context.Context, urls []string, verb string, f func(context.Context, *session) error) error {
	open := a.newSessions()
	defer open.close()
	var errs []error
	all := 0
	for _, u := range urls {
		targets, err := open.expand(ctx, u)
		if err != nil {
			all++
			errs = append(errs, err)
		}
		for _, s := range targets {
			all++
			if err := f(ctx, s); err != nil {
				errs = append(errs, cannot(err, "%s %s", verb, s.target))
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
	}
	return a.summary(errs, all)
}

// summary reports the failures among a number of actions.
func (a *app) summary(errs []error, all int) error {
	if all == 1 || len(errs) == 0 {
		return errors.Join(errs...)
	}
	for _, err := range errs {
		a.note("%s", explain(err))
	}
	return fmt.Errorf("%d of %d failed", len(errs), all)
}

// expand returns a session for each file that a URL with globs names. Without a match it is the
// URL itself, as in a shell.
func (x *sessions) expand(ctx context.Context, rawURL string) ([]*session, error) {
	t, err := parseTarget(rawURL)
	if err != nil {
		return nil, err
	}
	s, err := x.at(ctx, t)
	if err != nil {
		return nil, err
	}
	paths, err := s.glob(ctx)
	if err != nil {
		return nil, cannot(err, "list %s", t)
	}
	if len(paths) == 0 {
		return []*session{s}, nil
	}
	var found []*session
	for _, p := range paths {
		found = append(found, s.at(t.move(p)))
	}
	return found, nil
}

// glob returns the paths that the target's globs match, sorted.
func (s *session) glob(ctx context.Context) ([]string, error) {
	if s.target.globs == nil {
		return nil, nil
	}
	found := []string{"/"}
	for _, g := range s.target.globs {
		var next []string
		for _, dir := range found {
			if g.pattern == "" {
				next = append(next, path.Join(dir, g.name))
				continue
			}
			names, err := s.match(ctx, dir, g.pattern)
			if err != nil {
				return nil, err
			}
			for _, n := range names {
				next = append(next, path.Join(dir, n))
			}
		}
		found = next
	}
	return found, nil
}

// match returns the names in a directory that match a pattern, none if there is no such directory.
func (s *session) match(ctx context.Context, dir, pattern string) (names []string, err error) {
	o, err := s.walk(ctx, dir, true)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR), err == nil && o.Attr.Attr.Type != nfs3.Dir:
		return nil, nil
	case err != nil:
		return nil, err
	}
	entries, err := s.entries(ctx, o.Handle, strings.HasPrefix(pattern, "."), nil)
	for i := range entries {
		n := entries[i].Name
		if ok, _ := path.Match(pattern, n); ok && n != "." && n != ".." {
			names = append(names, n)
		}
	}
	return names, err
}

package sluicectl

import (
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice.dev/sluice/pkg/nfs/nfs3"
)

// onURL makes c a command on files of a server: it gets the flags of connections, and its arguments
// are completed, local files too where it takes any.
func (a *app) onURL(c *cobra.Command) *cobra.Command {
	a.connectionFlags(c)
	a.reconnectFlag(c)
	c.ValidArgsFunction = a.completeArgs(strings.Contains(c.Use, "FILE"))
	return c
}

// completeWithin bounds the time that a shell waits for names of a server.
const completeWithin = 2 * time.Second

// completeArgs completes URLs by the names on the server, and local files where local is true.
func (a *app) completeArgs(local bool) cobra.CompletionFunc {
	return func(c *cobra.Command, _ []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if strings.Contains(word, "://") {
			return a.completeURL(c.Context(), word), cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
		}
		if local {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return []cobra.Completion{schemeRDMA + "://", schemeTCP + "://"}, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	}
}

// completeURL returns the URLs that begin with word.
func (a *app) completeURL(ctx context.Context, word string) (found []cobra.Completion) {
	plain, query, hasQuery := strings.Cut(word, "?")
	at := strings.LastIndexByte(plain, '/') + 1
	dir := plain[:at]
	if strings.HasSuffix(dir, "://") {
		return nil // hosts are not known
	}
	where := dir
	if hasQuery {
		where += "?" + query
	}
	prefix, err := url.PathUnescape(plain[at:])
	if err != nil {
		return nil
	}
	a.opts.timeout = min(a.opts.timeout, completeWithin)
	_ = a.mounted(ctx, where, "complete", false, func(ctx context.Context, s *session) error {
		o, err := s.walk(ctx, s.target.path, true)
		if err != nil {
			return err
		}
		entries, err := s.entries(ctx, o.Handle, strings.HasPrefix(prefix, "."), nil)
		for i := range entries {
			e := &entries[i]
			if !strings.HasPrefix(e.Name, prefix) || e.Name == "." || e.Name == ".." {
				continue
			}
			slash := ""
			if s.complete(ctx, o.Handle, true, e) == nil && e.Attr.Attr.Type == nfs3.Dir {
				slash = "/"
			}
			found = append(found, dir+url.PathEscape(e.Name)+slash)
		}
		return err
	})
	return found
}

package sluicectl

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice.dev/sluice/pkg/nfs/nfs3"
)

// between accepts least to most arguments; most < 0 means any number.
func between(least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) < least || most >= 0 && len(args) > most {
			return fmt.Errorf("%s was given %d arguments, want: %s", c.Name(), len(args), strings.Replace(c.UseLine(), " [flags]", "", 1))
		}
		return nil
	}
}

func exactly(n int) cobra.PositionalArgs { return between(n, n) }

// noCommand rejects a first argument that names no command.
func noCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := fmt.Sprintf("%q lists them", c.Name()+" --help")
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return fmt.Errorf("there is no command %q; %s", args[0], hint)
}

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
		entries, err := s.entries(ctx, o.Handle, strings.HasPrefix(prefix, "."))
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

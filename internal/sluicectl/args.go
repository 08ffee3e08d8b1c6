package sluicectl

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// between accepts least to most arguments; most < 0 means any number.
func between(least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) < least || most >= 0 && len(args) > most {
			return fmt.Errorf("%s was given %d %s, want: %s", c.Name(), len(args), plural("arguments", int64(len(args))), strings.Replace(c.UseLine(), " [flags]", "", 1))
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
	c.SuggestionsMinimumDistance = min(2, len(args[0])/3) // a short name resembles many
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return fmt.Errorf("there is no command %q; %s", args[0], hint)
}

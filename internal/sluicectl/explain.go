package sluicectl

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"sluice.dev/sluice/docs"
)

// explainCommand prints the explanation of a reason.
func (a *app) explainCommand() *cobra.Command {
	reasons := explanations(docs.Troubleshooting)
	var names []string
	for _, r := range reasons {
		names = append(names, r.name)
	}
	return &cobra.Command{
		Use:   "explain [REASON]",
		Short: "Explain the reason of a condition, its causes and remedies",
		Long: "explain prints the cause and the remedy of a reason, as the conditions of NFSGateways and NFSExports and the output of sluicectl doctor " +
			"have them. Without a REASON it lists all of them.",
		Example:           "  sluicectl explain AddressNotHeld",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				topic := ""
				for _, r := range reasons {
					if r.topic != topic {
						topic = r.topic
						fmt.Fprintln(a.Out, topic)
					}
					fmt.Fprintln(a.Out, "  "+r.name)
				}
				return nil
			}
			i := slices.IndexFunc(reasons, func(r explanation) bool { return strings.EqualFold(r.name, args[0]) })
			if i < 0 {
				return fmt.Errorf("%q is not the reason of a condition: sluicectl explain lists them", args[0])
			}
			fmt.Fprintf(a.Out, "%s: %s\n\n%s\n", reasons[i].topic, reasons[i].name, reasons[i].text)
			return nil
		},
	}
}

// explanation is the text about a reason.
type explanation struct{ topic, name, text string }

// explanations returns the sections of a page with headings of the third level, under the headings
// above them.
func explanations(page string) (all []explanation) {
	topic := ""
	var now *explanation
	for line := range strings.Lines(page) {
		if name, ok := strings.CutPrefix(line, "## "); ok {
			topic, now = strings.TrimSpace(name), nil
		} else if name, ok := strings.CutPrefix(line, "### "); ok {
			all = append(all, explanation{topic: topic, name: strings.TrimSpace(name)})
			now = &all[len(all)-1]
		} else if now != nil {
			now.text += line
		}
	}
	for i := range all {
		all[i].text = strings.TrimSpace(all[i].text)
	}
	return all
}

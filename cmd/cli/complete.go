package cli

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"penstock/node/api"
	"penstock/node/kinds"
)

// completionTimeout bounds the time of one completion request.
const completionTimeout = 2 * time.Second

type completion = func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective)

// completeResource completes kinds, then the names of that kind's resources.
func completeResource(t *target) completion {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		var words []string
		switch len(args) {
		case 0:
			for _, k := range kinds.All() {
				words = append(words, k.Plural)
			}
		case 1:
			quick := *t
			quick.timeout = completionTimeout
			r, err := ask[api.GetResult](cmd, &quick, api.MethodGet, api.GetRequest{Kind: args[0], Stale: true})
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			for _, d := range r.Documents {
				words = append(words, d.Name)
			}
		}
		return withPrefix(words, prefix), cobra.ShellCompDirectiveNoFileComp
	}
}

// nodeNames completes node names.
func (t *target) nodeNames(cmd *cobra.Command, prefix string) []string {
	quick := *t
	quick.timeout = completionTimeout
	r, err := ask[api.Members](cmd, &quick, api.MethodMembers, api.Empty{})
	if err != nil {
		return nil
	}
	var names []string
	for _, m := range *r {
		names = append(names, m.Name)
	}
	return withPrefix(names, prefix)
}

// completeMember completes the one NODE argument of a command.
func completeMember(t *target) completion {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return t.nodeNames(cmd, prefix), cobra.ShellCompDirectiveNoFileComp
	}
}

func withPrefix(words []string, prefix string) (matching []string) {
	for _, w := range words {
		if strings.HasPrefix(w, prefix) {
			matching = append(matching, w)
		}
	}
	return matching
}

package cli

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"penstock/node/admin"
	"penstock/node/kinds"
)

// completing bounds the time of one completion request.
const completing = 2 * time.Second

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
			hurried := *t
			hurried.timeout = completing
			r, err := ask[admin.GetResult](cmd, &hurried, admin.MethodGet, admin.GetRequest{Kind: args[0], Stale: true})
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			for _, d := range r.Documents {
				words = append(words, d.Name)
			}
		}
		return begin(words, prefix), cobra.ShellCompDirectiveNoFileComp
	}
}

// members completes node names.
func (t *target) members(cmd *cobra.Command, prefix string) []string {
	hurried := *t
	hurried.timeout = completing
	r, err := ask[admin.Members](cmd, &hurried, admin.MethodMembers, admin.Empty{})
	if err != nil {
		return nil
	}
	var names []string
	for _, m := range *r {
		names = append(names, m.Name)
	}
	return begin(names, prefix)
}

// completeMember completes the one NODE argument of a command.
func completeMember(t *target) completion {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return t.members(cmd, prefix), cobra.ShellCompDirectiveNoFileComp
	}
}

func begin(words []string, prefix string) (matching []string) {
	for _, w := range words {
		if strings.HasPrefix(w, prefix) {
			matching = append(matching, w)
		}
	}
	return matching
}

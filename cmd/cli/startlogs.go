package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"penstock/node"
	"penstock/node/accesslog"
	"penstock/node/accesslog/output"
)

// logFlags adds the settings of the logs.
func (s *settings) logFlags(cmd *cobra.Command) {
	f, n := cmd.Flags(), &s.node
	f.StringVar(&s.logFormat, "log-format", "text", "text or json")
	f.StringVar(&s.logLevel, "log-level", "info", "debug, info, warn or error")
	f.TextVar(&n.LogMemory, "log-memory", node.DefaultLogMemory, "memory for the last lines of both logs, which penstock logs shows")
	f.StringVar(&n.AccessLog, "access-log", node.AccessClosed, "off (failures are still kept in memory), closed (one line per connection "+
		"and per individually routed HTTP request, at its end) or all (at connect, every --access-log-interval and at the end)")
	f.DurationVar(&n.AccessInterval, "access-log-interval", node.DefaultAccessInterval, "time between lines about an open connection, "+
		"with --access-log all")
	f.StringSliceVar(&n.AccessTo, "access-log-to", []string{"stderr"}, "where the access log goes, one or several: "+output.Usage+
		"; ?KEY=VALUE&... after it sets options: format; size and keep of files; facility of syslog; ca, cert and key of syslog+tls")
	f.StringVar(&n.AccessFormat, "access-log-format", "", "one of "+strings.Join(accesslog.FormatNames, ", ")+" (default that of --log-format)")
	f.StringSliceVar(&n.AccessFields, "access-log-fields", nil, "only these fields, in this order, for the formats text and json")
	f.StringVar(&n.AccessSample, "access-log-sample", "", "REASON=N,...: write one of N lines with that reason, which then says sampled=N; "+
		"instead of a reason also ordinary, open, answered and default")
	_ = cmd.RegisterFlagCompletionFunc("access-log-format", cobra.FixedCompletions(accesslog.FormatNames, cobra.ShellCompDirectiveNoFileComp))
}

package node

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"penstock/node/accesslog"
	"penstock/node/accesslog/output"
	"penstock/node/logs"
	"penstock/routing/resource"
)

// DefaultAccessInterval is the default of Config.AccessInterval, minAccessInterval the
// least that it may be.
const (
	DefaultAccessInterval = 5 * time.Minute
	minAccessInterval     = time.Second
)

// DefaultLogMemory is the default of Config.LogMemory.
const DefaultLogMemory resource.Size = logs.DefaultBudget

// checkLogs lists the faults in the settings of the logs.
func (c Config) checkLogs() (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if c.AccessLog != AccessOff && c.AccessLog != AccessClosed && c.AccessLog != AccessAll {
		fault("--access-log %s: want off, closed or all", c.AccessLog)
	}
	if c.AccessInterval < minAccessInterval {
		fault("--access-log-interval %v: want %v or more", c.AccessInterval, minAccessInterval)
	}
	if c.LogMemory != 0 && c.LogMemory < logs.MinBudget {
		fault("--log-memory %v: want %v or more", c.LogMemory, resource.Size(logs.MinBudget))
	}
	if _, err := accesslog.ParseSampling(c.AccessSample); err != nil {
		fault("--access-log-sample: %v", err)
	}
	if _, err := c.accessFormat(""); err != nil {
		fault("--access-log-format, --access-log-fields: %v", err)
	}
	names := map[string]bool{}
	for _, text := range c.AccessTo {
		t, err := output.Parse(text)
		switch {
		case err != nil:
			fault("--access-log-to %v", err)
			continue
		case names[t.Name]:
			fault("--access-log-to %s: given twice", t.Name)
		}
		names[t.Name] = true
		if _, err := c.accessFormat(t.Format); err != nil && t.Format != "" {
			fault("--access-log-to %s: %v", t.Name, err)
		}
	}
	return faults
}

// accessFormat makes the format of this name; "": that of AccessFormat.
func (c Config) accessFormat(name string) (accesslog.Format, error) {
	fallback := accesslog.FormatText
	if c.AccessJSON {
		fallback = accesslog.FormatJSON
	}
	fields := c.AccessFields
	if name = cmp.Or(name, c.AccessFormat, fallback); name == accesslog.FormatHAProxy || name == accesslog.FormatEnvoy {
		fields = nil
	}
	return accesslog.NewFormat(name, fields)
}

// quietQueue is the length of the queue of an access log that has failures for the memory
// alone.
const quietQueue = 1024

// openAccessLog makes the access log with its sinks. With AccessOff it has none, and the
// failures are kept in memory.
func (n *Node) openAccessLog() error {
	cfg := accesslog.Config{Memory: n.logs}
	if n.cfg.AccessLog == AccessOff {
		cfg.Queue = quietQueue
	}
	n.access = accesslog.New(cfg)
	if n.cfg.AccessLog == AccessOff {
		return nil
	}
	sampling, err := accesslog.ParseSampling(n.cfg.AccessSample)
	if err != nil {
		return fmt.Errorf("--access-log-sample: %w", err)
	}
	to := n.cfg.AccessTo
	if len(to) == 0 {
		to = []string{"stderr"}
	}
	for _, text := range to {
		t, err := output.Parse(text)
		if err != nil {
			return fmt.Errorf("--access-log-to: %w", err)
		}
		format, err := n.cfg.accessFormat(t.Format)
		if err != nil {
			return fmt.Errorf("--access-log-to %s: %w", t.Name, err)
		}
		out, err := t.Open(n.cfg.Name, n.cfg.AccessOut)
		if err != nil {
			return fmt.Errorf("--access-log-to %s: %w", t.Name, err)
		}
		n.access.Add(accesslog.NewLines(accesslog.LinesConfig{
			Name: t.Name, Output: out, Format: format, Sampling: sampling, Log: n.log,
		}))
	}
	return nil
}

// keepLogs returns the memory of the last lines, and a handler that keeps its lines there.
func keepLogs(cfg *Config) (*logs.Logs, slog.Handler) {
	memory := logs.New(logs.Config{Node: cfg.Name, Budget: int(cmp.Or(cfg.LogMemory, DefaultLogMemory))})
	return memory, memory.Handler(cfg.Log.Handler())
}

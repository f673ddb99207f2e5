package api

import "time"

// MethodLimits tells what the RateLimits do on the node that answers: LimitsRequest ->
// Limits.
const MethodLimits = "limits.use"

// LimitsRequest asks about a RateLimit; "": about all.
type LimitsRequest struct {
	Node  string `json:"node,omitempty"` // name or ID; "": the node that serves the request
	Limit string `json:"limit,omitempty"`
}

// Limits is what RateLimits do on a node.
type Limits struct {
	Node   string     `json:"node"`
	Limits []LimitUse `json:"limits"` // by name
}

// LimitUse is what one RateLimit has decided since the node knows it, and its budgets now.
type LimitUse struct {
	Limit string `json:"limit"`
	By    string `json:"by"`
	// Keys have a budget of their own, at most MaxKeys. Overflows counts uses of the budget
	// that all others share.
	Keys      int            `json:"keys"`
	MaxKeys   int            `json:"maxKeys"`
	Overflows uint64         `json:"overflows"`
	Of        []DimensionUse `json:"of"`
	// Fullest are the budgets of which most is used, at most MaxFullest, the fullest first.
	Fullest []BudgetUse `json:"fullest,omitempty"`
}

// MaxFullest bounds the budgets of a LimitUse.
const MaxFullest = 10

// DimensionUse is what a RateLimit has decided about one thing that it bounds.
type DimensionUse struct {
	Of      string `json:"of"` // connections, concurrent, requests, bytes_in, bytes_out, produce or fetch
	Allowed uint64 `json:"allowed"`
	Refused uint64 `json:"refused"`
	Queued  uint64 `json:"queued"` // of Allowed, those that waited
	Paced   uint64 `json:"paced"`  // pauses of bytes, and of Kafka's requests
}

// BudgetUse is how much of a budget is used.
type BudgetUse struct {
	Key string `json:"key"` // "": clients without one
	Of  string `json:"of"`
	// Used is the part of the burst that is used, in percent; over 100 someone waits. Of
	// concurrent it is the part of the connections.
	Used float64 `json:"used"`
	// Wait is for how long the next one has to wait, in nanoseconds.
	Wait time.Duration `json:"wait,omitempty"`
}

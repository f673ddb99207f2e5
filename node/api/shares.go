package api

import "time"

// MethodDemand reports a node's demand for rate limits with scope cluster to the
// leader: quota.Report -> quota.Answer.
const MethodDemand = "limits.demand"

// MethodShares lists who holds what of such limits: SharesRequest -> Shares.
const MethodShares = "limits.shares"

// SharesRequest asks for the shares of a RateLimit; "": of all.
type SharesRequest struct {
	Limit string `json:"limit,omitempty"`
}

// Shares are the shares of budgets with demand, as the leader counts them.
type Shares struct {
	Budgets []BudgetShares `json:"budgets"`
	// More is how many budgets are left out: an answer has at most MaxBudgets.
	More int `json:"more,omitempty"`
}

// MaxBudgets bounds the budgets of Shares.
const MaxBudgets = 1000

// BudgetShares is a budget of one key, with the parts that nodes have of it. Rates are
// in units per second.
type BudgetShares struct {
	Limit     string  `json:"limit"`
	Dimension string  `json:"dimension"` // connections, requests, bytes_in, bytes_out
	Key       string  `json:"key,omitempty"`
	Budget    float64 `json:"budget"`
	Shares    []Share `json:"shares"`
}

// Share is a node's part of a budget.
type Share struct {
	Node  string  `json:"node"`
	Want  float64 `json:"want"`  // what clients want there
	Share float64 `json:"share"` // what the node was given last
	// Left is how long the lease lasts, in nanoseconds; 0: it has ended.
	Left time.Duration `json:"left"`
}

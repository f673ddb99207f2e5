package api

import "time"

// MethodProblems lists what is wrong in the cluster now: Empty -> Problems.
const MethodProblems = "problems"

// MethodProblemsHere lists what is wrong on the node that answers, for nodes: Empty ->
// Problems.
const MethodProblemsHere = "problems.here"

// MaxProblems bounds the problems of one answer.
const MaxProblems = 1000

// Problems are sorted: the gravest first.
type Problems struct {
	At       time.Time `json:"at,omitzero"` // not in /v1/events, which sends what has changed
	Problems []Problem `json:"problems"`
	More     int       `json:"more,omitempty"` // that are left out
	// Missing are the nodes that did not answer, and why.
	Missing []string `json:"missing,omitempty"`
}

// The severities of a Problem.
const (
	SeverityError   = "error"   // clients are refused, or data may be lost
	SeverityWarning = "warning" // it works, and may not for long
)

// Problem is one thing that is wrong.
type Problem struct {
	Severity string `json:"severity"`
	// About is the resource or the node: "Service/apps", "Node/n1".
	About string `json:"about"`
	Text  string `json:"text"` // one sentence
	// Command tells more: "penstock get endpoints apps".
	Command string `json:"command,omitempty"`
}

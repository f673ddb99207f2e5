package api

import (
	"fmt"
	"time"
)

// MethodDebug streams what is needed to find out what is wrong with a node:
// DebugRequest -> DebugPart... It is for admins: profiles and goroutines show what a node
// is doing.
const MethodDebug = "debug"

const (
	// MaxDebugProfile bounds DebugRequest.CPU.
	MaxDebugProfile = time.Minute
	// MaxDebugPart bounds a part of the answer, in bytes. What is beyond is cut off.
	MaxDebugPart = 16 << 20
	// MaxDebugParts bounds the parts of the answer.
	MaxDebugParts = 32
)

// DebugRequest asks a node for its state.
type DebugRequest struct {
	Node string `json:"node,omitempty"` // name or ID; "": the node that serves the request
	// CPU is how long the node records a CPU profile; 0: it records none.
	CPU time.Duration `json:"cpu,omitempty"`
}

// Summary describes the request for the audit log.
func (r *DebugRequest) Summary() string { return fmt.Sprintf("a CPU profile of %v", r.CPU) }

// The parts of the answer.
const (
	DebugAbout      = "about.json"     // AboutNode
	DebugSettings   = "settings.json"  // []Setting
	DebugMetrics    = "metrics.prom"   // in Prometheus' text format
	DebugGoroutines = "goroutines.txt" // stacks without arguments, equal ones counted
	DebugHeap       = "heap.pb.gz"     // for go tool pprof
	DebugCPU        = "cpu.pb.gz"      // for go tool pprof
)

// DebugPart is the next piece of a part. The pieces of a part follow one another.
type DebugPart struct {
	Name string `json:"name"`
	Data []byte `json:"data,omitempty"`
	Last bool   `json:"last,omitempty"` // of its part
	// Error says, in the last piece, why the part is missing or cut off.
	Error string `json:"error,omitempty"`
}

// AboutNode describes a node's process and machine.
type AboutNode struct {
	Name    string    `json:"name"`
	ID      string    `json:"id"`
	Version string    `json:"version"`
	Go      string    `json:"go"`
	System  string    `json:"system"` // linux/amd64
	Kernel  string    `json:"kernel,omitempty"`
	CPUs    int       `json:"cpus"`  // of the machine
	Procs   int       `json:"procs"` // that Go uses at once
	Started time.Time `json:"started"`
	At      time.Time `json:"at"` // by its clock
	// MemoryLimit is the runtime's soft limit, GCPercent how much the heap may grow
	// between collections, both as in force now.
	MemoryLimit int64  `json:"memoryLimit"`
	GCPercent   uint64 `json:"gcPercent"`
	// Files is the limit of open descriptors.
	Files uint64 `json:"files,omitempty"`
}

// Setting is a setting of a node, by the name of its flag. It has no secret.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// HiddenSetting is the value of a setting that is a secret.
const HiddenSetting = "(hidden)"

package api

import (
	"math"
	"strconv"
	"time"

	"penstock/node/telemetry"
)

// The methods for what nodes have measured in the last hour.
const (
	MethodTelemetry     = "telemetry"      // TelemetryRequest -> TelemetryResult
	MethodTelemetryHere = "telemetry-here" // TelemetryRequest -> TelemetryResult: of this node alone, to nodes
)

// NodeLabel is a label that every metric has in a TelemetryRequest: the node's name.
const NodeLabel = "node"

// MaxQueries bounds the queries of a TelemetryRequest.
const MaxQueries = 32

// TelemetryRequest asks for metrics of the last hour.
type TelemetryRequest struct {
	// Queries may use NodeLabel in By and Where. Without queries, the metrics that there
	// are to ask for are listed.
	Queries []telemetry.Query `json:"queries,omitempty"`
	// Quantiles are those that are computed of histograms, between 0 and 1.
	Quantiles []float64 `json:"quantiles,omitempty"`
}

// TelemetryResult is the sum of all nodes that answered.
type TelemetryResult struct {
	At     time.Time        `json:"at"` // of the last points, by the clock of the node that was asked
	Frames []TelemetryFrame `json:"frames,omitempty"`
	// Metrics are what there is to ask for.
	Metrics []telemetry.Recorded `json:"metrics,omitempty"`
	Nodes   []TelemetryNode      `json:"nodes"`
}

// TelemetryFrame is the answer to a query.
type TelemetryFrame struct {
	telemetry.Frame
	// Quantiles has, for each quantile asked for, the points of each group, in seconds.
	Quantiles []TelemetryQuantile `json:"quantiles,omitempty"`
}

// TelemetryQuantile is one quantile of a histogram.
type TelemetryQuantile struct {
	Quantile float64  `json:"quantile"`
	Groups   []Points `json:"groups"` // as those of the frame
}

// Points are numbers over time. NaN, in JSON null, means that there is none.
type Points []float64

// MarshalJSON implements json.Marshaler.
func (p Points) MarshalJSON() ([]byte, error) {
	b := []byte{'['}
	for i, v := range p {
		if i > 0 {
			b = append(b, ',')
		}
		if math.IsNaN(v) {
			b = append(b, "null"...)
		} else {
			b = strconv.AppendFloat(b, v, 'g', -1, 64)
		}
	}
	return append(b, ']'), nil
}

// TelemetryNode is a node of the cluster.
type TelemetryNode struct {
	Name  string `json:"name"`
	Error string `json:"error,omitempty"` // why its numbers are not in the answer; "": they are
}

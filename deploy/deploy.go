// Package deploy holds the Helm chart, from which the command prints manifests without
// Helm (package manifests of cmd).
package deploy

import "embed"

// Chart has the chart at helm/penstock.
//
//go:embed all:helm/penstock
var Chart embed.FS

// Package api defines what commands and nodes send each other: the methods with
// their requests and responses, errors with their codes, and the roles of
// callers. These are plain types; package rpc transports them in msgpack, with
// the Go names of fields as keys, and commands and /v1 show them as JSON.
package api

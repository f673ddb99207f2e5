// Package api defines what commands and nodes send each other: the methods with
// their requests and responses, errors with their codes, and the roles of
// callers. These are plain types; package rpc transports them in msgpack, keyed by
// their json tags, and commands and /v1 show them as JSON.
package api

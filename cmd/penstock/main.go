// Command penstock is the proxy and the tool that operates it.
package main

import (
	"os"

	"penstock/cmd/cli"
)

func main() {
	os.Exit(cli.Run(cli.HideSecrets(os.Args)[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}

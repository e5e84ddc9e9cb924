// CoreDNS with the plugins that bench/resolver.py needs: it is built in seconds, and begins as soon.
package main

import (
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/file"
)

func main() { coremain.Run() }

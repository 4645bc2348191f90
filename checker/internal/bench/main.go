package main

import (
	"flag"
	"log"
	"os"

	"github.com/lockcheck/lockcheck/checker/internal/gen"
)

func main() {
	var c gen.Config
	var lease bool
	flag.IntVar(&c.Ops, "ops", 1000000, "")
	flag.IntVar(&c.Clients, "clients", 20, "")
	flag.IntVar(&c.Keys, "keys", 1, "")
	flag.Float64Var(&c.Unknown, "unknown", 0, "")
	flag.BoolVar(&c.Plant, "plant", false, "")
	flag.BoolVar(&c.Tokens, "tokens", false, "")
	flag.BoolVar(&c.Writes, "writes", false, "")
	flag.BoolVar(&lease, "lease", false, "")
	flag.BoolVar(&c.Deadline, "deadline", false, "")
	flag.Parse()
	if lease {
		c.TTL, c.Renew = gen.Lease, true
	}
	if err := gen.Write(os.Stdout, gen.History(c)); err != nil {
		log.Fatal(err)
	}
}

// Package deploy runs the servers of a lock system: on this machine as child
// processes on free loopback ports, in a folder of the run. Whatever happens to
// the harness, nothing that was started here outlives it.
package deploy

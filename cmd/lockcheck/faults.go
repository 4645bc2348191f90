package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockcheck/lockcheck/internal/deploy"
	"github.com/lockcheck/lockcheck/internal/harness"
)

func (a *app) faultsCommand() *cobra.Command {
	var f runFlags
	var verify, brief bool
	c := &cobra.Command{
		Use:   "faults --verify",
		Short: "Inject every fault on every backend, and show that it takes effect",
		Long: `Inject every fault on a client and on the servers of every backend whose servers
are found, heal it, and see that a lock is granted again. Each line has the times
that this took and the proof, or says why the fault is unavailable there; with
--brief there is one line for each fault. The exit status is 0 if each fault that
is available took effect, 3 if one did not, and 4 if the environment failed.`,
		Example: "  lockcheck faults --verify --backend redis\n  lockcheck faults --verify --brief\n  lockcheck faults --verify --runtime docker --backend etcd",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if !verify {
				return usagef("nothing to do: give --verify (lockcheck list faults lists them)")
			}
			if err := f.checkNetwork(); err != nil {
				return err
			}
			if err := f.runtime.check(f); err != nil {
				return err
			}
			p := &plan{flags: f}
			bs, err := p.chooseBackends(true, nil)
			if err != nil {
				return err
			}
			out, err := filepath.Abs(f.out)
			if err != nil {
				return environment(err)
			}
			cache := deploy.NewCache()
			defer cache.Close()
			l := a.live(c.Context(), liveOptions{total: len(bs), each: "backend", counts: "failure"})
			defer l.close()
			var all []harness.FaultCheck
			var failed []error
			for n, b := range bs {
				if c.Context().Err() != nil {
					break
				}
				act := l.begin("faults on "+b.Name, n+1)
				checks, err := harness.VerifyFaults(c.Context(), harness.Options{
					Backend: b, Nodes: f.nodes, TTL: f.ttl, Bin: f.bin, Cache: cache, Out: out, Network: f.network, Watch: act.observe,
					Runtime: f.runtime.name, Versions: f.runtime.versions(), ClientImage: f.runtime.clientImage,
				}, func(fault string, n, of int) { act.does(fmt.Sprintf("%s (%d/%d)", fault, n, of)) })
				all = append(all, checks...)
				if err != nil {
					failed = append(failed, fmt.Errorf("backend %s: %w", b.Name, err))
				}
				word, ok := effective(checks)
				act.end(word, !ok || err != nil, false)
			}
			l.close()
			switch {
			case f.json:
				err = writeJSONLines(a.stdout, all)
			case brief:
				err = briefFaults(a.stdout, all)
			default:
				err = faultTable(a.stdout, all)
			}
			if err != nil {
				return environment(err)
			}
			for _, m := range p.missing {
				fmt.Fprintf(a.stderr, "left out: %s: %v\n", m.what, m.why)
			}
			if err := errors.Join(failed...); err != nil {
				return environment(err)
			}
			if c.Context().Err() != nil {
				return exitError{exitInterrupted, errors.New("interrupted: these are the faults that were tried before")}
			}
			for _, check := range all {
				if !check.Effective && check.Unavailable == "" {
					return ended(exitInconclusive)
				}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&verify, "verify", false, "inject each, and heal it")
	c.Flags().BoolVar(&brief, "brief", false, "print one line for each fault")
	c.Flags().StringSliceVar(&f.backends, "backend", nil, "lock system to try them on, repeatable (default: all whose servers are found)")
	c.Flags().IntVar(&f.nodes, "nodes", 0, "number of servers (default: the backend's)")
	c.Flags().StringVar(&f.out, "out", "lockcheck-runs", "folder for the folders of runs")
	c.Flags().StringToStringVar(&f.bin, "bin", nil, "server binary to use, as software=path; etcd=embedded for the built-in one")
	f.addNetwork(c)
	f.runtime.addOne(c)
	c.Flags().BoolVar(&f.json, "json", false, "print one JSON object a line")
	return c
}

// effective counts the checks in which a fault was effective, and says whether all
// were in which it is available.
func effective(checks []harness.FaultCheck) (word string, ok bool) {
	tried, worked := 0, 0
	for _, c := range checks {
		if c.Unavailable == "" {
			tried++
		}
		if c.Effective {
			worked++
		}
	}
	return fmt.Sprintf("%d of %d effective", worked, tried), worked == tried
}

// faultName is a fault with its parameters, but for some of them.
func faultName(c harness.FaultCheck, without ...string) string {
	name := c.Fault
	for _, p := range slices.Sorted(maps.Keys(c.With)) {
		if slices.Contains(without, p) {
			continue
		}
		name += fmt.Sprintf(" %s=%s", p, strings.ReplaceAll(c.With[p], " ", ""))
	}
	return name
}

// short is a time in the table.
func short(d time.Duration) string {
	if d >= time.Second {
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(100 * time.Microsecond).String()
}

func faultTable(out io.Writer, all []harness.FaultCheck) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "fault\tbackend\ton\toutcome\tinject\theal\tgranted\tproof")
	for _, c := range all {
		outcome, proof := "effective", c.Proof
		times := []string{short(c.Inject), short(c.Heal), short(c.Granted)}
		switch {
		case c.Unavailable != "":
			outcome, proof, times = "unavailable", c.Unavailable, make([]string, 3)
		case !c.Effective:
			outcome, proof = "NOT EFFECTIVE", c.Error
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", faultName(c), c.Backend, strings.Join(c.Targets, ","), outcome, strings.Join(times, "\t"), proof)
	}
	return w.Flush()
}

// briefFaults prints what became of each fault on all backends: how often it was
// tried and effective, the median and the longest of the times, and why it is
// unavailable, or not effective, where that is so.
func briefFaults(out io.Writer, all []harness.FaultCheck) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "fault\teffective\tinject\theal\tgranted\twhy not")
	var names []string
	by := map[string][]harness.FaultCheck{}
	for _, c := range all {
		name := faultName(c, "groups") // whose names are each backend's own
		if by[name] == nil {
			names = append(names, name)
		}
		by[name] = append(by[name], c)
	}
	for _, name := range names {
		var inject, heal, granted []time.Duration
		tried, why := 0, map[string]bool{}
		for _, c := range by[name] {
			if c.Unavailable != "" {
				reason := c.Unavailable
				for _, t := range c.Targets {
					reason = strings.ReplaceAll(reason, t, "it")
				}
				why[reason] = true
				continue
			}
			tried++
			if c.Effective {
				inject, heal, granted = append(inject, c.Inject), append(heal, c.Heal), append(granted, c.Granted)
			} else {
				why[fmt.Sprintf("NOT EFFECTIVE on %s (%s): %s", c.Backend, strings.Join(c.Targets, ","), c.Error)] = true
			}
		}
		fmt.Fprintf(w, "%s\t%d of %d\t%s\t%s\t%s\t%s\n", name, len(inject), tried,
			spread(inject), spread(heal), spread(granted), strings.Join(slices.Sorted(maps.Keys(why)), "; "))
	}
	return w.Flush()
}

// spread is the median and the longest of some times.
func spread(of []time.Duration) string {
	if len(of) == 0 {
		return ""
	}
	slices.Sort(of)
	return fmt.Sprintf("%s (%s)", short(of[len(of)/2]), short(of[len(of)-1]))
}

func writeJSONLines[T any](out io.Writer, all []T) error {
	enc := json.NewEncoder(out)
	for _, x := range all {
		if err := enc.Encode(x); err != nil {
			return err
		}
	}
	return nil
}

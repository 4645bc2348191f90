package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/internal/deploy"
)

// parseVersions reads --versions: "etcd=3.4.23,3.6.16".
func parseVersions(all []string) (map[string][]string, error) {
	chosen := map[string][]string{}
	for _, s := range all {
		software, list, ok := strings.Cut(s, "=")
		if !ok || list == "" || !slices.Contains(versioned, software) {
			return nil, usagef("--versions %s: want a software, which is one of %s, and its versions, such as etcd=3.4.23,3.6.16", s, strings.Join(versioned, ", "))
		}
		for v := range strings.SplitSeq(list, ",") {
			if v == "" || slices.Contains(chosen[software], v) {
				return nil, usagef("--versions %s: a version is empty, or is there twice", s)
			}
			chosen[software] = append(chosen[software], v)
		}
	}
	return chosen, nil
}

// withVersions makes of each unit one for each combination of the versions of the
// software that its backend runs. A unit whose backend runs none of it is left out.
func (p *plan) withVersions(units []unit) ([]unit, error) {
	chosen, err := parseVersions(p.flags.runtime.matrix)
	if err != nil || len(chosen) == 0 {
		return units, err
	}
	var all []unit
	for _, u := range units {
		made := []unit{u}
		for _, software := range slices.Sorted(maps.Keys(chosen)) {
			if !runs(u.backend, p.flags, software) {
				continue
			}
			var next []unit
			for _, m := range made {
				for _, v := range chosen[software] {
					x, err := p.withVersion(m, software, v)
					if err != nil {
						return nil, err
					}
					next = append(next, x)
				}
			}
			made = next
		}
		if len(made) > 1 || made[0].bin != nil || made[0].versions != nil {
			all = append(all, made...)
		}
	}
	return all, nil
}

// runs reports whether a backend has servers of a software.
func runs(b backends.Backend, f runFlags, software string) bool {
	if b.Servers == nil {
		return false
	}
	for _, s := range b.Servers(backends.Options{Nodes: f.nodes, TTL: f.ttl}) {
		// A Sentinel is a Redis server, a standby one of PostgreSQL.
		if base, _, _ := strings.Cut(s.Software, "-"); base == software {
			return true
		}
	}
	return false
}

// withVersion is a unit with a version of a software: an image's, or that of a
// program that is found here, or its path.
func (p *plan) withVersion(u unit, software, v string) (unit, error) {
	if p.flags.runtime.docker() {
		u.versions = maps.Clone(u.versions)
		if u.versions == nil {
			u.versions = p.flags.runtime.versions()
		}
		u.versions[software] = v
		if err := deploy.CheckContainers(context.Background(), u.versions, software); err != nil {
			return u, environment(err)
		}
		return u, nil
	}
	path, err := programOf(software, v, p.flags.bin[software])
	if err != nil {
		return u, environment(fmt.Errorf("--versions: %w", err))
	}
	u.bin = maps.Clone(u.bin)
	if u.bin == nil {
		u.bin = maps.Clone(p.flags.bin)
	}
	if u.bin == nil {
		u.bin = map[string]string{}
	}
	u.bin[software] = path
	return u, nil
}

// programOf returns the path of the program of a version: v itself, if it is a path, or
// the first of that version among chosen, what is found, and what is built in.
func programOf(software, v, chosen string) (string, error) {
	if v == "embedded" || strings.Contains(v, "/") {
		_, err := deploy.Find(context.Background(), software, v)
		return v, err
	}
	var seen []string
	for _, path := range []string{chosen, "", "embedded"} {
		if path == "embedded" && software != "etcd" {
			continue
		}
		b, err := deploy.Find(context.Background(), software, path)
		if err != nil {
			continue
		}
		number, _, _ := strings.Cut(b.Version, " ")
		if number == v {
			return b.Path, nil
		}
		if !slices.Contains(seen, number) {
			seen = append(seen, number)
		}
	}
	has := "none of it is found"
	if len(seen) > 0 {
		has = "there is " + strings.Join(seen, ", ")
	}
	return "", fmt.Errorf("no %s %s here: %s; give its path instead, as in --versions %s=/opt/%s-%s/bin/%s", software, v, has, software, software, v, software)
}

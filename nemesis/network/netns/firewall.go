package netns

import (
	"errors"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
)

// firewall makes a namespace drop the packets that come from some addresses.
type firewall struct {
	// set returns the command, and its input, that makes exactly these rules.
	set func(from []netip.Addr) (argv []string, stdin string)
	// list returns the command whose output count reads.
	list []string
	// count returns how many packets each rule has dropped so far.
	count func(output string) map[netip.Addr]int64
}

// findFirewall returns nftables, or iptables where there is none.
func findFirewall() (firewall, error) {
	if _, err := exec.LookPath("nft"); err == nil {
		return nftables, nil
	}
	if _, err := exec.LookPath("iptables"); err == nil {
		return iptables, nil
	}
	return firewall{}, errors.New("neither nft nor iptables is installed: install nftables")
}

var nftables = firewall{
	set: func(from []netip.Addr) ([]string, string) {
		var b strings.Builder
		// One transaction; deleting needs a table that is there.
		b.WriteString("add table ip lockcheck\ndelete table ip lockcheck\n")
		if len(from) > 0 {
			b.WriteString("add table ip lockcheck\n")
			b.WriteString("add chain ip lockcheck in { type filter hook input priority 0; policy accept; }\n")
		}
		for _, a := range from {
			b.WriteString("add rule ip lockcheck in ip saddr " + a.String() + " counter drop\n")
		}
		return []string{"nft", "-f", "-"}, b.String()
	},
	list: []string{"nft", "list", "ruleset"},
	count: func(output string) map[netip.Addr]int64 {
		// ip saddr 10.77.0.11 counter packets 3 bytes 180 drop
		counts := map[netip.Addr]int64{}
		for line := range strings.Lines(output) {
			f := strings.Fields(line)
			if len(f) < 6 || f[0] != "ip" || f[1] != "saddr" || f[3] != "counter" {
				continue
			}
			a, err1 := netip.ParseAddr(f[2])
			n, err2 := strconv.ParseInt(f[5], 10, 64)
			if err1 == nil && err2 == nil {
				counts[a] = n
			}
		}
		return counts
	},
}

var iptables = firewall{
	set: func(from []netip.Addr) ([]string, string) {
		var b strings.Builder
		b.WriteString("*filter\n:INPUT ACCEPT\n") // restoring a table empties it first
		for _, a := range from {
			b.WriteString("-A INPUT -s " + a.String() + " -j DROP\n")
		}
		b.WriteString("COMMIT\n")
		return []string{"iptables-restore"}, b.String()
	},
	list: []string{"iptables", "-L", "INPUT", "-n", "-v", "-x"},
	count: func(output string) map[netip.Addr]int64 {
		// pkts bytes target prot opt in out source destination
		counts := map[netip.Addr]int64{}
		for line := range strings.Lines(output) {
			f := strings.Fields(line)
			if len(f) < 9 || f[2] != "DROP" {
				continue
			}
			n, err1 := strconv.ParseInt(f[0], 10, 64)
			a, err2 := netip.ParseAddr(f[7])
			if err1 == nil && err2 == nil {
				counts[a] = n
			}
		}
		return counts
	},
}

package deploy

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	apiversion "go.etcd.io/etcd/api/v3/version"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/lockcheck/lockcheck/internal/selfexec"
)

// etcdRole is the embedded member as a process.
const etcdRole = "etcd-member"

// etcdOptions are the options that a server may have: etcd ignores those that it
// does not know, and a run would then not test what it says.
var etcdOptions = regexp.MustCompile(`^(heartbeat-interval|election-timeout|snapshot-count|quota-backend-bytes)$`)

// etcd is a member of an etcd cluster: a program that was found, or if there is
// none, this program with etcd's server in it. Options are those of etcd's
// configuration file, see etcdOptions.
func init() {
	selfexec.Register(etcdRole, runMember)
	Register(Software{
		Name:    "etcd",
		cluster: true,
		find: func(ctx context.Context, path string) (Binary, error) {
			inside := Binary{Path: embedded, Version: apiversion.Version + " (embedded)"}
			if path == embedded {
				return inside, nil
			}
			found, err := locate(path, "etcd", usual("etcd")...)
			if path == "" && errors.Is(err, exec.ErrNotFound) {
				return inside, nil
			}
			if err != nil {
				return Binary{}, err
			}
			v, err := version(ctx, found, "--version", regexp.MustCompile(`etcd Version: (\S+)`))
			return Binary{Path: found, Version: v}, err
		},
		programs: func(s site) ([]program, error) {
			cluster := &etcdCluster{token: "lockcheck-" + rand.Text(), bin: s.bin}
			for i, server := range s.servers {
				if err := checkOptions(server, etcdOptions); err != nil {
					return nil, err
				}
				m := &etcd{cluster: cluster, name: server.Name, dir: s.dirs[i], options: map[string]int{}}
				for k, v := range server.Options {
					n, err := strconv.Atoi(v)
					if err != nil {
						return nil, fmt.Errorf("server %s: option %q: %q is not a whole number", server.Name, k, v)
					}
					m.options[k] = n
				}
				if err := m.place(s); err != nil {
					return nil, err
				}
				for _, port := range []*int{&m.client, &m.peer} {
					var err error
					if *port, err = s.port(); err != nil {
						return nil, err
					}
				}
				cluster.members = append(cluster.members, m)
			}
			if err := cluster.advertise(s.peer); err != nil {
				return nil, err
			}
			var all []program
			for _, m := range cluster.members {
				all = append(all, m)
			}
			return all, nil
		},
	})
}

// place says where a member listens and where it is reached.
func (m *etcd) place(s site) (err error) {
	if m.host, err = s.at(m.name); err != nil {
		return err
	}
	m.bind, m.peerHost = m.host, m.host
	if s.contained != nil {
		m.bind, m.peerHost = "0.0.0.0", s.contained.peerHost(m.name)
		m.apart = s.contained.published()
	}
	return nil
}

type etcdCluster struct {
	token   string
	bin     Binary
	members []*etcd
}

// advertise has every member tell the others the address that peer says, if
// there are others.
func (c *etcdCluster) advertise(peer func(server, addr string, peers []string) (string, error)) error {
	for _, m := range c.members {
		m.advertised = m.ownPeerURL()
		if peer == nil || len(c.members) == 1 {
			continue
		}
		var others []string
		for _, o := range c.members {
			if o != m {
				others = append(others, o.name)
			}
		}
		addr, err := peer(m.name, net.JoinHostPort(m.peerHost, strconv.Itoa(m.peer)), others)
		if err != nil {
			return err
		}
		m.advertised = "http://" + addr
	}
	return nil
}

// initial is the list of members that every member is given.
func (c *etcdCluster) initial() string {
	var all []string
	for _, m := range c.members {
		all = append(all, m.name+"="+m.peerURL())
	}
	return strings.Join(all, ",")
}

type etcd struct {
	cluster        *etcdCluster
	name, dir      string
	options        map[string]int
	client, peer   int
	host, peerHost string // where the harness and clients reach it, and where the others do
	bind           string // where it listens
	apart          bool   // only clients reach it, and the other members
	advertised     string // the peer URL that the others are told
}

func (m *etcd) url() string           { return httpAt(m.host, m.client) }
func (m *etcd) peerURL() string       { return m.advertised }
func (m *etcd) listenPeerURL() string { return httpAt(m.bind, m.peer) }
func (m *etcd) ownPeerURL() string    { return httpAt(m.peerHost, m.peer) }
func httpAt(host string, port int) string {
	return "http://" + net.JoinHostPort(host, strconv.Itoa(port))
}

func (m *etcd) listens() []int { return []int{m.client, m.peer} }
func (m *etcd) ended() error   { return nil }
func (m *etcd) conf() string   { return filepath.Join(m.dir, "etcd.json") }

func (m *etcd) prepare(ctx context.Context, again bool) error {
	state := "new"
	if again && len(m.cluster.members) > 1 {
		state = "existing"
		if err := m.rejoin(ctx); err != nil {
			return fmt.Errorf("join the cluster anew: %w", err)
		}
	}
	if !again {
		if err := m.afterThoseBefore(ctx); err != nil {
			return err
		}
	}
	if err := os.Mkdir(m.dir, 0o700); err != nil {
		return err
	}
	conf := map[string]any{
		"name":                        m.name,
		"data-dir":                    filepath.Join(m.dir, "data"),
		"listen-client-urls":          httpAt(m.bind, m.client),
		"advertise-client-urls":       m.url(),
		"listen-peer-urls":            m.listenPeerURL(),
		"initial-advertise-peer-urls": m.peerURL(),
		"initial-cluster":             m.cluster.initial(),
		"initial-cluster-token":       m.cluster.token,
		"initial-cluster-state":       state,
		"enable-grpc-gateway":         true, // what ready and rejoin speak to
		// Else no member can rejoin before its cluster is five seconds old.
		"strict-reconfig-check": false,
		"logger":                "zap",
		"log-outputs":           []string{"stderr"},
	}
	for k, v := range m.options {
		conf[k] = v
	}
	// JSON is YAML, which etcd reads.
	b, err := json.MarshalIndent(conf, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(m.conf(), b, 0o600)
}

// afterThoseBefore waits until the member before this one, if there is one, answers
// its peers. A new member first asks each of the others whether it was a member
// before. One that does not listen yet is as good an answer as one that serves,
// but members that have all just begun to listen wait for each other, a second
// for each.
func (m *etcd) afterThoseBefore(ctx context.Context) error {
	i := slices.Index(m.cluster.members, m)
	if i == 0 || m.apart {
		return nil
	}
	before := m.cluster.members[i-1]
	var last error
	for {
		err := before.answersPeers(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s, which starts before, does not answer its peers: %w (last: %w)", before.name, context.Cause(ctx), cmp.Or(last, err))
		case <-time.After(poll):
			last = err
		}
	}
}

func (m *etcd) answersPeers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return call(ctx, http.MethodGet, m.ownPeerURL()+"/members", nil, nil)
}

func (m *etcd) command() (*exec.Cmd, error) {
	if m.cluster.bin.Path != embedded {
		return exec.Command(m.cluster.bin.Path, "--config-file", m.conf()), nil
	}
	argv, err := selfexec.Command(etcdRole, m.conf())
	if err != nil {
		return nil, err
	}
	return exec.Command(argv[0], argv[1:]...), nil
}

// runMember runs an embedded member until it fails or is killed.
func runMember(args []string) int {
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, "etcd:", err)
		return 1
	}
	if len(args) != 1 {
		return fail(errors.New("want the path of a configuration file"))
	}
	conf, err := embed.ConfigFromFile(args[0])
	if err != nil {
		return fail(err)
	}
	e, err := embed.StartEtcd(conf)
	if err != nil {
		return fail(err)
	}
	defer e.Close()
	select {
	case err := <-e.Err():
		return fail(err)
	case <-e.Server.StopNotify():
		return fail(errors.New("the server has stopped"))
	}
}

// etcdMember is a member as the cluster lists it.
type etcdMember struct {
	ID       string   `json:"ID"`
	Name     string   `json:"name"`
	PeerURLs []string `json:"peerURLs"`
}

type etcdMembers struct {
	Header struct {
		MemberID string `json:"member_id"`
	} `json:"header"`
	Members []etcdMember `json:"members"`
}

// ready asks for the member's health, which includes a read that a majority
// confirms, and for the member that answers: its peer address is on this
// machine and thus nobody else's.
func (m *etcd) ready(ctx context.Context, _ int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var health struct {
		Health string `json:"health"`
		Reason string `json:"reason"`
	}
	if err := call(ctx, http.MethodGet, m.url()+"/health", nil, &health); err != nil {
		return err
	}
	if health.Health != "true" {
		return fmt.Errorf("unhealthy: %s", health.Reason)
	}
	list, err := m.list(ctx)
	if err != nil {
		return err
	}
	for _, x := range list.Members {
		if x.ID == list.Header.MemberID {
			if x.Name != m.name || !slices.Contains(x.PeerURLs, m.peerURL()) {
				return fmt.Errorf("the server on port %d is member %q at %v, not %q at %s", m.client, x.Name, x.PeerURLs, m.name, m.peerURL())
			}
			return nil
		}
	}
	return fmt.Errorf("the server on port %d is no member of its cluster", m.client)
}

func (m *etcd) list(ctx context.Context) (etcdMembers, error) {
	var list etcdMembers
	err := call(ctx, http.MethodPost, m.url()+"/v3/cluster/member/list", struct{}{}, &list)
	return list, err
}

// rejoinLimit is how long it may take until the other members, who may have
// to elect a leader first, have agreed on a new one.
const rejoinLimit = 10 * time.Second

// rejoin has the other members replace this one by a new one at the same
// address: a member that forgot what it voted for must not come back as the old.
func (m *etcd) rejoin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, rejoinLimit)
	defer cancel()
	for {
		var errs []error
		for _, other := range m.cluster.members {
			if other == m {
				continue
			}
			err := m.replaceThrough(ctx, other)
			if err == nil {
				return nil
			}
			errs = append(errs, fmt.Errorf("through %s: %w", other.name, err))
		}
		select {
		case <-ctx.Done():
			return errors.Join(errs...)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// replaceThrough may be repeated if its outcome is unknown: it removes what it
// added before.
func (m *etcd) replaceThrough(ctx context.Context, other *etcd) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	list, err := other.list(ctx)
	if err != nil {
		return err
	}
	for _, x := range list.Members {
		if slices.Contains(x.PeerURLs, m.peerURL()) {
			req := map[string]string{"ID": x.ID}
			if err := call(ctx, http.MethodPost, other.url()+"/v3/cluster/member/remove", req, nil); err != nil {
				return err
			}
		}
	}
	req := map[string]any{"peerURLs": []string{m.peerURL()}}
	return call(ctx, http.MethodPost, other.url()+"/v3/cluster/member/add", req, nil)
}

// etcdHTTP keeps no connections: a reply must not come from before a restart.
var etcdHTTP = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// call sends a request with a JSON body and decodes the answer.
func call(ctx context.Context, method, url string, body, answer any) error {
	var r io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		r = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, url, r)
	if err != nil {
		return err
	}
	resp, err := etcdHTTP.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", url, resp.Status, bytes.TrimSpace(b))
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal(b, answer); err != nil {
		return fmt.Errorf("%s: %w", url, err)
	}
	return nil
}

package deploy

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockcheck/lockcheck/internal/deploy/engine"
)

// Containers runs the servers of one run as containers of an engine. Compose makes
// them, and the two networks that they are on: the clients', on which clients
// reach servers, and the peers', on which servers reach each other.
//
// Where the engine is on this machine, servers are reached at their containers'
// addresses, which stay the same over restarts; elsewhere at published ports.
type Containers struct {
	engine   *engine.Engine
	versions map[string]string // by software, see ContainerOptions
	project  string
	owner    string
	nets     [2]netip.Prefix // of the clients and of the peers
	keepers  *keepers        // nil if servers have none
	bare     error           // why

	mu     sync.Mutex
	places map[string]int // number of a server's address in both networks
	users  map[[2]string]userID
	file   string // that compose was given, "" before
}

// ContainerOptions say which containers.
type ContainerOptions struct {
	// Versions of images, by software: "redis" → "7.4". Others are as the
	// environment says, LOCKCHECK_REDIS_VERSION, or those that are known to work. LOCKCHECK_REDIS_IMAGE
	// and so on name other images than the official ones.
	Versions map[string]string
}

// image is how a software comes as an image.
type image struct {
	software []string // that is in it
	name     string
	prefix   string // of the tag, before the version
	version  string // if nobody asks for another
	program  string // on its PATH
	user     string // to run it as; "" is the image's own
	ports    []int  // where the software listens
	// Variables that choose another image and version are called so: "REDIS"
	// for LOCKCHECK_REDIS_IMAGE and LOCKCHECK_REDIS_VERSION: etcd takes ETCD_VERSION for itself.
	variable string
	says     *regexp.Regexp // how the program says its version
}

var images = []image{
	{software: []string{"redis"}, name: "redis", version: "7.4", program: "redis-server", ports: []int{6379}, variable: "REDIS", says: regexp.MustCompile(`\bv=(\S+)`), user: "0:0"},
	{software: []string{"redis-sentinel"}, name: "redis", version: "7.4", program: "redis-server", ports: []int{26379}, variable: "REDIS", says: regexp.MustCompile(`\bv=(\S+)`), user: "0:0"},
	{software: []string{"etcd"}, name: "quay.io/coreos/etcd", prefix: "v", version: "3.5.21", program: "etcd", ports: []int{2379, 2380}, variable: "ETCD", says: regexp.MustCompile(`etcd Version: (\S+)`), user: "0:0"},
	{software: []string{"postgres", standbySoftware}, name: "postgres", version: "17", program: "postgres", ports: []int{5432}, variable: "POSTGRES", says: regexp.MustCompile(`\(PostgreSQL\) (\S+)`), user: "postgres"},
	{software: []string{"pgbouncer"}, name: "edoburu/pgbouncer", prefix: "v", version: "1.24.1-p1", program: "pgbouncer", ports: []int{6432}, variable: "PGBOUNCER", says: regexp.MustCompile(`PgBouncer (\S+)`), user: "65534:65534"},
}

func imageOf(software string) (image, error) {
	for _, i := range images {
		if slices.Contains(i.software, software) {
			return i, nil
		}
	}
	return image{}, fmt.Errorf("there is no image for %s: it cannot run in a container", software)
}

// ImageName returns the image that a software runs from: of the version that is
// asked for, or else as the environment says.
func ImageName(software string, versions map[string]string) (string, error) {
	i, err := imageOf(software)
	if err != nil {
		return "", err
	}
	name, prefix := os.Getenv("LOCKCHECK_"+i.variable+"_IMAGE"), i.prefix
	if name == "" {
		name = i.name
	} else if i.variable != "ETCD" {
		prefix = "" // the official images of etcd are not alone in that
	}
	version := cmp.Or(versions[strings.ToLower(i.variable)], os.Getenv("LOCKCHECK_"+i.variable+"_VERSION"), i.version)
	return name + ":" + prefix + version, nil
}

// NewContainers finds the engine and compose, and removes what runs that were
// killed have left there. The caller hands it to NewLocal, whose Close ends it.
func NewContainers(ctx context.Context, o ContainerOptions) (*Containers, error) {
	e, err := engine.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if i := e.Info(); i.OS != "linux" {
		return nil, fmt.Errorf("the engine at %s runs containers of %s, and the servers need linux", e.At(), i.OS)
	}
	if err := checkCompose(ctx); err != nil {
		return nil, err
	}
	if _, err := sweep(ctx, e, dead); err != nil {
		return nil, fmt.Errorf("remove what a run that was killed has left: %w", err)
	}
	owner, err := self()
	if err != nil {
		return nil, err
	}
	c := &Containers{
		engine: e, versions: o.Versions, owner: owner, project: newProject(),
		places: map[string]int{}, users: map[[2]string]userID{},
	}
	c.keepers, c.bare = findKeeper(ctx, e.Here())
	return c, nil
}

// Patched returns nil if servers are started with the patches of Options, or else why
// not.
func (c *Containers) Patched() error { return c.bare }

// checkCompose returns an error if the docker command has no compose.
func checkCompose(ctx context.Context) error {
	_, err := composeVersion(ctx)
	return err
}

// composeVersion returns the version of the docker command's compose.
func composeVersion(ctx context.Context) (string, error) {
	cmd := exec.Command("docker", "compose", "version", "--short")
	if errors.Is(cmd.Err, exec.ErrNotFound) {
		return "", errors.New("there is no docker command: install Docker's client and its compose plugin")
	}
	said, err := output(ctx, cmd)
	if err != nil {
		said, _, _ := strings.Cut(err.Error(), "\n") // then comes how it is used
		return "", fmt.Errorf("the docker command has no compose (install its plugin, such as docker-compose-v2, or run scripts/docker-engine): %s", said)
	}
	return strings.TrimSpace(said), nil
}

// CheckContainers returns nil if servers of all of the software can run as
// containers, or else what is in the way. It pulls images that are missing.
func CheckContainers(ctx context.Context, versions map[string]string, software ...string) error {
	e, err := engine.Connect(ctx)
	if err != nil {
		return err
	}
	if err := checkCompose(ctx); err != nil {
		return err
	}
	for _, s := range software {
		if known, err := find(s); err != nil || known.Serve != nil {
			continue // it runs inside the harness, or is refused later
		}
		name, err := ImageName(s, versions)
		if err != nil {
			return err
		}
		if err := obtain(ctx, e, name); err != nil {
			return err
		}
	}
	return nil
}

// obtain sees to it that the engine has an image.
func obtain(ctx context.Context, e *engine.Engine, name string) error {
	_, err := e.Image(ctx, name)
	if err == nil || !engine.IsMissing(err) {
		return err
	}
	if err := e.Pull(ctx, name); err != nil {
		return fmt.Errorf("the engine does not have the image %s and cannot pull it (load it, choose another, or build one from installed programs with scripts/docker-images): %w", name, err)
	}
	return nil
}

// Here reports whether the containers run on this machine.
func (c *Containers) Here() bool { return c.engine.Here() }

// Engine returns the engine that runs the containers.
func (c *Containers) Engine() *engine.Engine { return c.engine }

// Project returns the name that all that belongs to the run begins with.
func (c *Containers) Project() string { return c.project }

// Labels returns the labels that all that belongs to the run has.
func (c *Containers) Labels() map[string]string {
	return map[string]string{runLabel: c.project, ownerLabel: c.owner}
}

// Networks of a run: the parts of their names after the project.
const (
	ClientsNetwork = "clients"
	PeersNetwork   = "peers"
)

// Network returns a network's name.
func (c *Containers) Network(which string) string { return c.project + "_" + which }

// Gateway returns the address that this machine has on a network, from when on
// servers were started.
func (c *Containers) Gateway(which string) string {
	return c.prefix(which).Addr().Next().String()
}

func (c *Containers) prefix(which string) netip.Prefix {
	if which == PeersNetwork {
		return c.nets[1]
	}
	return c.nets[0]
}

// Address returns a server's address on a network. It stays the same over restarts.
func (c *Containers) Address(server, which string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.prefix(which).Addr().Next()
	for range c.places[server] {
		a = a.Next()
	}
	return a.String()
}

// Has reports whether a server has a place among the containers.
func (c *Containers) Has(server string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.places[server]
	return ok
}

// ServerAt returns the server that has an address on one of the networks.
func (c *Containers) ServerAt(address string) (string, bool) {
	c.mu.Lock()
	all := make([]string, 0, len(c.places))
	for name := range c.places {
		all = append(all, name)
	}
	c.mu.Unlock()
	for _, name := range all {
		if address == c.Address(name, ClientsNetwork) || address == c.Address(name, PeersNetwork) {
			return name, true
		}
	}
	return "", false
}

// place gives a server its addresses.
func (c *Containers) place(server string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.places[server]; !ok {
		c.places[server] = len(c.places) + 1
	}
	if len(c.places) > maxServers {
		return fmt.Errorf("more than %d servers do not fit into the networks of a run", maxServers)
	}
	return nil
}

// Sizes of a run's networks: servers have the lower half of the addresses, and
// what gets some address, such as a client, the upper.
const (
	prefixBits = 26
	maxServers = 29
)

// published reports whether servers are reached at ports of the engine's machine.
func (c *Containers) published() bool { return !c.engine.Here() }

// host is where the harness reaches a server.
func (c *Containers) host(server string) (string, error) {
	if err := c.place(server); err != nil {
		return "", err
	}
	if c.published() {
		return cmp.Or(c.engine.Host(), "127.0.0.1"), nil
	}
	return c.Address(server, ClientsNetwork), nil
}

// contained is a software in containers.
type contained struct {
	*Containers
	software image
	image    string // with its tag
}

func (c *Containers) contain(software string) (*contained, error) {
	i, err := imageOf(software)
	if err != nil {
		return nil, err
	}
	name, err := ImageName(software, c.versions)
	return &contained{c, i, name}, err
}

func (c *contained) peerHost(server string) string { return c.Address(server, PeersNetwork) }

// config is what all containers of the software have in common, as the API has it.
func (c *contained) config(argv, env []string) json.RawMessage {
	config := map[string]any{
		"Image": c.image, "Entrypoint": argv[:1], "Cmd": argv[1:], "Env": env, "Labels": c.Labels(),
	}
	if c.software.user != "" {
		config["User"] = c.software.user
	}
	b, err := json.Marshal(config)
	if err != nil {
		panic(err) // strings and maps of strings cannot fail
	}
	return b
}

// run runs a program of the image to its end in a container of its own, which is
// given a folder of this machine and whose changes to it are fetched back.
func (c *contained) run(ctx context.Context, cmd *exec.Cmd, folder string) error {
	_, err := c.once(ctx, cmd.Args, cmd.Env, folder)
	return err
}

// once is run, with what the program wrote. Folder may be "".
func (c *contained) once(ctx context.Context, argv, env []string, folder string) (_ string, err error) {
	if err := obtain(ctx, c.engine, c.image); err != nil {
		return "", err
	}
	host := json.RawMessage(`{}`)
	if folder != "" {
		host = json.RawMessage(fmt.Sprintf(`{"NetworkMode": %q}`, c.Network(PeersNetwork)))
	}
	argv = append([]string{filepath.Base(argv[0])}, argv[1:]...)
	id, err := c.engine.Create(ctx, "", engine.Spec{Config: c.config(argv, env), HostConfig: host})
	if err != nil {
		return "", fmt.Errorf("make a container of %s: %w", c.image, err)
	}
	defer func() { err = errors.Join(err, c.engine.Remove(context.WithoutCancel(ctx), id)) }()
	if folder != "" {
		if err := c.push(ctx, id, folder); err != nil {
			return "", err
		}
	}
	if err := c.engine.Start(ctx, id); err != nil {
		return "", fmt.Errorf("run %s in a container of %s: %w", argv[0], c.image, err)
	}
	var out bytes.Buffer
	status, err := c.engine.Wait(ctx, id)
	if err == nil {
		err = c.engine.Logs(ctx, id, time.Time{}, &out)
	}
	if err == nil && status != 0 {
		err = fmt.Errorf("exit status %d: %s", status, strings.TrimSpace(out.String()))
	}
	if err != nil {
		return "", fmt.Errorf("%s in a container of %s: %w", argv[0], c.image, err)
	}
	if folder == "" {
		return out.String(), nil
	}
	return out.String(), c.fetch(ctx, id, folder)
}

// userID is a user in an image.
type userID struct{ uid, gid int }

// owner returns whom the files of a container have to belong to.
func (c *contained) owner(ctx context.Context, id string) (userID, error) {
	uid, gid, ok := strings.Cut(c.software.user, ":")
	if ok {
		u, err1 := strconv.Atoi(uid)
		g, err2 := strconv.Atoi(gid)
		return userID{u, g}, errors.Join(err1, err2)
	}
	key := [2]string{c.image, c.software.user}
	c.mu.Lock()
	found, ok := c.users[key]
	c.mu.Unlock()
	if ok {
		return found, nil
	}
	archive, err := c.engine.Get(ctx, id, "/etc/passwd")
	if err != nil {
		return userID{}, fmt.Errorf("look for the user %s in %s: %w", c.software.user, c.image, err)
	}
	defer archive.Close()
	r := tar.NewReader(archive)
	if _, err := r.Next(); err != nil {
		return userID{}, fmt.Errorf("look for the user %s in %s: %w", c.software.user, c.image, err)
	}
	text, err := io.ReadAll(io.LimitReader(r, 1<<20))
	if err != nil {
		return userID{}, fmt.Errorf("look for the user %s in %s: %w", c.software.user, c.image, err)
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Split(line, ":")
		if len(f) < 4 || f[0] != c.software.user {
			continue
		}
		u, err1 := strconv.Atoi(f[2])
		g, err2 := strconv.Atoi(f[3])
		if err := errors.Join(err1, err2); err != nil {
			return userID{}, fmt.Errorf("the user %s in %s: %w", c.software.user, c.image, err)
		}
		c.mu.Lock()
		c.users[key] = userID{u, g}
		c.mu.Unlock()
		return userID{u, g}, nil
	}
	return userID{}, fmt.Errorf("the image %s has no user %s", c.image, c.software.user)
}

// push copies a folder of this machine to the same path in a container.
func (c *contained) push(ctx context.Context, id, folder string) error {
	as, err := c.owner(ctx, id)
	if err != nil {
		return err
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(pack(w, folder, as)) }()
	err = c.engine.Put(ctx, id, "/", r)
	r.CloseWithError(cmp.Or(err, io.ErrClosedPipe))
	if err != nil {
		return fmt.Errorf("copy %s into a container of %s: %w", folder, c.image, err)
	}
	return nil
}

// pack writes a folder as a tar archive whose names are those of its files, from the root.
func pack(w io.Writer, folder string, as userID) error {
	archive := tar.NewWriter(w)
	err := filepath.Walk(folder, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		h, err := tar.FileInfoHeader(info, "")
		if err != nil {
			return err
		}
		h.Name, h.Uid, h.Gid, h.Uname, h.Gname = strings.TrimPrefix(path, "/"), as.uid, as.gid, "", ""
		if info.IsDir() {
			h.Name += "/"
		}
		if err := archive.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(archive, f)
		return err
	})
	return errors.Join(err, archive.Close())
}

// fetch replaces the files of a folder of this machine by those of a container.
func (c *contained) fetch(ctx context.Context, id, folder string) error {
	archive, err := c.engine.Get(ctx, id, folder)
	if err != nil {
		return fmt.Errorf("fetch %s from a container of %s: %w", folder, c.image, err)
	}
	defer archive.Close()
	if err := unpack(archive, folder); err != nil {
		return fmt.Errorf("fetch %s from a container of %s: %w", folder, c.image, err)
	}
	return nil
}

// unpack extracts folders and files of an archive whose names begin with that of
// the folder. What is not inside it is an error.
func unpack(archive io.Reader, folder string) error {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	r := tar.NewReader(archive)
	for {
		h, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		_, name, _ := strings.Cut(strings.TrimSuffix(h.Name, "/"), "/")
		switch {
		case name == "":
		case h.Typeflag == tar.TypeDir:
			if err := root.MkdirAll(name, 0o700); err != nil {
				return err
			}
		case h.Typeflag == tar.TypeReg:
			f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
			if err != nil {
				return err
			}
			_, err = io.Copy(f, r)
			if err := errors.Join(err, f.Close()); err != nil {
				return err
			}
		}
	}
}

// binary is the program of a software as its image has it.
func (c *contained) binary(ctx context.Context, cache *Cache) (Binary, error) {
	return cache.contained(c.image+" "+c.software.program, func() (Binary, error) {
		flag := "--version"
		out, err := c.once(ctx, []string{c.software.program, flag}, nil, "")
		if err != nil {
			return Binary{}, err
		}
		m := c.software.says.FindStringSubmatch(out)
		if m == nil {
			return Binary{}, fmt.Errorf("%s %s in %s says %q: no version in it", c.software.program, flag, c.image, strings.TrimSpace(out))
		}
		return Binary{Path: c.software.program, Version: m[1]}, nil
	})
}

// choosePrefixes picks networks that nobody else here uses, of the range that is
// set aside for the testing of networks.
func (c *Containers) choosePrefixes(ctx context.Context) error {
	taken, err := c.engine.Networks(ctx, "")
	if err != nil {
		return err
	}
	var used []netip.Prefix
	for _, n := range taken {
		for _, i := range n.IPAM.Config {
			if p, err := netip.ParsePrefix(i.Subnet); err == nil {
				used = append(used, p)
			}
		}
	}
	if addresses, err := net.InterfaceAddrs(); err == nil {
		for _, a := range addresses {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				used = append(used, p)
			}
		}
	}
	for i := range c.nets {
		p, ok := freePrefix(used)
		if !ok {
			return errors.New("all networks of 198.18.0.0/15 are taken: lockcheck cleanup removes those of runs that were killed")
		}
		c.nets[i] = p
		used = append(used, p)
	}
	return nil
}

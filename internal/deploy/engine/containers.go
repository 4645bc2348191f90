package engine

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Container is a container in a list.
type Container struct {
	ID     string `json:"Id"`
	Names  []string
	Labels map[string]string
	State  string // "running", "paused", "exited", "created"
}

// Spec is what a container is made from. Config and HostConfig are as the API
// has them; those that were inspected can be used again.
type Spec struct {
	Config     json.RawMessage
	HostConfig json.RawMessage
	Networks   map[string]Endpoint
}

// Endpoint is a container's end of a network.
type Endpoint struct {
	IPAMConfig *Address `json:",omitempty"`
	Aliases    []string `json:",omitempty"`
	IPAddress  string   `json:",omitempty"` // only when inspected
}

// Address is an address that is asked for.
type Address struct {
	IPv4Address string
}

// Detail is what inspecting a container tells.
type Detail struct {
	ID    string `json:"Id"`
	Name  string
	State struct {
		Status     string // as Container.State
		Paused     bool
		Running    bool // also while it is paused
		Pid        int  // on the engine's machine, 0 if it does not run
		ExitCode   int
		Error      string
		FinishedAt string
	}
	Config          json.RawMessage
	HostConfig      json.RawMessage
	NetworkSettings struct {
		Networks map[string]Endpoint
	}
}

// Ended returns when the container ended last, zero if it never ran.
func (d Detail) Ended() time.Time {
	t, err := time.Parse(time.RFC3339Nano, d.State.FinishedAt)
	if err != nil || t.Year() < 1970 {
		return time.Time{}
	}
	return t
}

// Containers lists the containers with a label, those that do not run too.
func (e *Engine) Containers(ctx context.Context, label string) ([]Container, error) {
	q := labelled(label)
	q.Set("all", "1")
	var all []Container
	err := e.call(ctx, http.MethodGet, "/containers/json", q, nil, &all)
	return all, err
}

// Create makes a container, which does not run yet, and returns its id.
func (e *Engine) Create(ctx context.Context, name string, s Spec) (string, error) {
	body := map[string]json.RawMessage{}
	if err := json.Unmarshal(s.Config, &body); err != nil {
		return "", fmt.Errorf("make container %s: %w", name, err)
	}
	body["HostConfig"] = s.HostConfig
	if len(s.Networks) > 0 {
		b, err := json.Marshal(map[string]any{"EndpointsConfig": s.Networks})
		if err != nil {
			return "", err
		}
		body["NetworkingConfig"] = b
	}
	var made struct {
		ID string `json:"Id"`
	}
	q := url.Values{}
	if name != "" {
		q.Set("name", name)
	}
	err := e.call(ctx, http.MethodPost, "/containers/create", q, body, &made)
	return made.ID, err
}

// Inspect returns what there is to know of a container, by its name or id.
func (e *Engine) Inspect(ctx context.Context, id string) (Detail, error) {
	var d Detail
	err := e.call(ctx, http.MethodGet, "/containers/"+id+"/json", nil, nil, &d)
	return d, err
}

func (e *Engine) act(ctx context.Context, id, verb string) error {
	return e.call(ctx, http.MethodPost, "/containers/"+id+"/"+verb, nil, nil, nil)
}

// ErrPortTaken says that a port at which a container is to be reached is taken on the
// engine's machine.
var ErrPortTaken = errors.New("a port that is to be published is taken on the engine's machine")

// Start starts a container. The error is [ErrPortTaken] if that is why it cannot.
func (e *Engine) Start(ctx context.Context, id string) error {
	err := e.act(ctx, id, "start")
	var refused *Error
	if errors.As(err, &refused) && (strings.Contains(refused.Message, "port is already allocated") || strings.Contains(refused.Message, "address already in use")) {
		return fmt.Errorf("%w (run again: others are chosen then): %w", ErrPortTaken, err)
	}
	return err
}

// Pause freezes all processes of a container, by the freezer.
func (e *Engine) Pause(ctx context.Context, id string) error { return e.act(ctx, id, "pause") }

// Unpause lets them go on.
func (e *Engine) Unpause(ctx context.Context, id string) error { return e.act(ctx, id, "unpause") }

// notRunning is the status with which an engine refuses to act on a container in
// another state.
const notRunning = http.StatusConflict

// Kill ends all processes of a container with SIGKILL and returns when they are
// gone, also if they were paused. One that does not run stays so.
func (e *Engine) Kill(ctx context.Context, id string) error {
	// Podman does not kill what is frozen.
	if d, err := e.Inspect(ctx, id); err != nil {
		return err
	} else if d.State.Paused {
		var refused *Error
		if err := e.Unpause(ctx, id); err != nil && !errors.As(err, &refused) {
			return err
		}
	}
	err := e.act(ctx, id, "kill")
	var refused *Error
	if errors.As(err, &refused) && refused.Status == notRunning {
		err = nil
	}
	if err != nil {
		return err
	}
	_, err = e.Wait(ctx, id)
	return err
}

// Wait returns the exit status of a container once it does not run.
func (e *Engine) Wait(ctx context.Context, id string) (int, error) {
	var end struct {
		StatusCode int
		Error      *struct{ Message string }
	}
	if err := e.call(ctx, http.MethodPost, "/containers/"+id+"/wait", nil, nil, &end); err != nil {
		return 0, err
	}
	if end.Error != nil && end.Error.Message != "" {
		return 0, errors.New(end.Error.Message)
	}
	return end.StatusCode, nil
}

// Remove kills and removes a container with its anonymous volumes. One that is
// not there any more is no error.
func (e *Engine) Remove(ctx context.Context, id string) error {
	err := e.call(ctx, http.MethodDelete, "/containers/"+id, url.Values{"force": {"1"}, "v": {"1"}}, nil, nil)
	var refused *Error
	if errors.As(err, &refused) && strings.Contains(refused.Message, "already in progress") {
		// Somebody else removes it: until it is gone, its networks are in use.
		return e.awaitRemoval(ctx, id)
	}
	if IsMissing(err) {
		return nil
	}
	return err
}

// removalPoll is how often it is asked whether a container is gone.
const removalPoll = 10 * time.Millisecond

func (e *Engine) awaitRemoval(ctx context.Context, id string) error {
	for {
		_, err := e.Inspect(ctx, id)
		if IsMissing(err) {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-time.After(removalPoll):
		case <-ctx.Done():
			return fmt.Errorf("container %s is still being removed: %w", id, context.Cause(ctx))
		}
	}
}

// Put extracts a tar archive into a folder of a container that need not run.
func (e *Engine) Put(ctx context.Context, id, dir string, archive io.Reader) error {
	answer, err := e.do(ctx, http.MethodPut, "/containers/"+id+"/archive", url.Values{"path": {dir}}, archive, "application/x-tar")
	if err != nil {
		return err
	}
	return answer.Close()
}

// Get returns a tar archive of a file or folder of a container. The caller
// closes it.
func (e *Engine) Get(ctx context.Context, id, path string) (io.ReadCloser, error) {
	return e.do(ctx, http.MethodGet, "/containers/"+id+"/archive", url.Values{"path": {path}}, nil, "")
}

// Logs copies to w what a container writes to its standard output and error from a
// time on, until it ends.
func (e *Engine) Logs(ctx context.Context, id string, since time.Time, w io.Writer) error {
	q := url.Values{"follow": {"1"}, "stdout": {"1"}, "stderr": {"1"}}
	if !since.IsZero() {
		q.Set("since", fmt.Sprintf("%d.%09d", since.Unix(), since.Nanosecond()))
	}
	answer, err := e.do(ctx, http.MethodGet, "/containers/"+id+"/logs", q, nil, "")
	if err != nil {
		return err
	}
	defer answer.Close()
	return demultiplex(w, answer)
}

// demultiplex copies the parts of a stream: each has a header of eight bytes, of
// which the first is the number of the stream and the last four are the length.
func demultiplex(w io.Writer, r io.Reader) error {
	var header [8]byte
	for {
		if _, err := io.ReadFull(r, header[:]); err == io.EOF {
			return nil
		} else if err != nil {
			return fmt.Errorf("read a container's output: %w", err)
		}
		if header[0] > 2 {
			return fmt.Errorf("read a container's output: there is no stream %d", header[0])
		}
		if _, err := io.CopyN(w, r, int64(binary.BigEndian.Uint32(header[4:]))); err != nil {
			return fmt.Errorf("read a container's output: %w", err)
		}
	}
}

// Processes returns the ids that a container's processes have on the engine's
// machine. There are none if it does not run.
func (e *Engine) Processes(ctx context.Context, id string) ([]int, error) {
	var top struct {
		Titles    []string
		Processes [][]string
	}
	err := e.call(ctx, http.MethodGet, "/containers/"+id+"/top", nil, nil, &top)
	var refused *Error
	if errors.As(err, &refused) && (refused.Status == notRunning || refused.Status == http.StatusInternalServerError) {
		if d, inspectErr := e.Inspect(ctx, id); inspectErr == nil && !d.State.Running {
			return nil, nil
		}
	}
	if err != nil {
		return nil, err
	}
	column := -1
	for i, title := range top.Titles {
		if title == "PID" {
			column = i
		}
	}
	var pids []int
	for _, p := range top.Processes {
		if column < 0 || column >= len(p) {
			return nil, fmt.Errorf("the engine lists processes without their ids: %v", top.Titles)
		}
		pid, err := strconv.Atoi(p[column])
		if err != nil {
			return nil, fmt.Errorf("the engine lists a process with the id %q", p[column])
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

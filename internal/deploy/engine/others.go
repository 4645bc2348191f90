package engine

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// Network is a network in a list.
type Network struct {
	ID     string `json:"Id"`
	Name   string
	Labels map[string]string
	IPAM   struct {
		Config []struct{ Subnet, Gateway string }
	}
}

// Networks lists networks with a label, or all if it is "".
func (e *Engine) Networks(ctx context.Context, label string) ([]Network, error) {
	var q url.Values
	if label != "" {
		q = labelled(label)
	}
	var all []Network
	err := e.call(ctx, http.MethodGet, "/networks", q, nil, &all)
	return all, err
}

// RemoveNetwork removes a network. One that is not there any more is no error.
func (e *Engine) RemoveNetwork(ctx context.Context, id string) error {
	err := e.call(ctx, http.MethodDelete, "/networks/"+id, nil, nil, nil)
	if IsMissing(err) {
		return nil
	}
	return err
}

// Join connects a container to a network.
func (e *Engine) Join(ctx context.Context, network, container string, end Endpoint) error {
	return e.call(ctx, http.MethodPost, "/networks/"+network+"/connect", nil,
		map[string]any{"Container": container, "EndpointConfig": end}, nil)
}

// Leave disconnects a container from a network.
func (e *Engine) Leave(ctx context.Context, network, container string) error {
	return e.call(ctx, http.MethodPost, "/networks/"+network+"/disconnect", nil,
		map[string]any{"Container": container}, nil)
}

// Volume is a volume in a list.
type Volume struct {
	Name   string
	Labels map[string]string
}

// Volumes lists the volumes with a label.
func (e *Engine) Volumes(ctx context.Context, label string) ([]Volume, error) {
	var all struct{ Volumes []Volume }
	err := e.call(ctx, http.MethodGet, "/volumes", labelled(label), nil, &all)
	return all.Volumes, err
}

// RemoveVolume removes a volume. One that is not there any more is no error.
func (e *Engine) RemoveVolume(ctx context.Context, name string) error {
	err := e.call(ctx, http.MethodDelete, "/volumes/"+name, nil, nil, nil)
	if IsMissing(err) {
		return nil
	}
	return err
}

// Image is an image that the engine has.
type Image struct {
	ID     string `json:"Id"` // digest of its configuration
	Config struct {
		Labels map[string]string
	}
}

// Image returns an image that the engine has.
func (e *Engine) Image(ctx context.Context, name string) (Image, error) {
	var i Image
	err := e.call(ctx, http.MethodGet, "/images/"+name+"/json", nil, nil, &i)
	return i, err
}

// Pull has the engine fetch an image and returns when it has it.
func (e *Engine) Pull(ctx context.Context, name string) error {
	image, tag := name, "latest"
	if i := strings.LastIndex(name, ":"); i > strings.LastIndex(name, "/") {
		image, tag = name[:i], name[i+1:]
	}
	answer, err := e.do(ctx, http.MethodPost, "/images/create", url.Values{"fromImage": {image}, "tag": {tag}}, nil, "")
	if err != nil {
		return err
	}
	defer answer.Close()
	// It reports progress, a line each, and may fail on the way.
	lines := bufio.NewScanner(answer)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct {
			Error string `json:"error"`
		}
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Error != "" {
			return errors.New(line.Error)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("pull %s: %w", name, err)
	}
	return nil
}

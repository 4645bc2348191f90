package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// fake connects to a server that answers as an engine does.
func fake(t *testing.T, podman bool, handle func(w http.ResponseWriter, r *http.Request)) *Engine {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		name := "Engine"
		if podman {
			name = "Podman Engine"
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"Version": "1.2", "Os": "linux", "Components": []any{map[string]string{"Name": name}}})
	})
	mux.HandleFunc("/v"+apiVersion+"/", handle)
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	t.Setenv("DOCKER_HOST", "tcp://"+strings.TrimPrefix(s.URL, "http://"))
	t.Setenv("DOCKER_TLS_VERIFY", "")
	e, err := Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestConnectTellsWhoAnswers(t *testing.T) {
	for _, podman := range []bool{false, true} {
		e := fake(t, podman, http.NotFound)
		if got, want := e.Info(), (Info{Version: "1.2", Podman: podman, OS: "linux"}); got != want {
			t.Errorf("Info = %+v, want %+v", got, want)
		}
	}
}

func TestErrorsAreTheEngines(t *testing.T) {
	e := fake(t, false, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"message": "no such container"}`))
	})
	err := e.Start(t.Context(), "x")
	var said *Error
	if !errors.As(err, &said) || said.Message != "no such container" || !IsMissing(err) {
		t.Errorf("Start = %v, want what the engine said", err)
	}
	if err := e.Remove(t.Context(), "x"); err != nil {
		t.Errorf("Remove of what is not there = %v", err)
	}
}

func TestPullFailsOnTheWay(t *testing.T) {
	var asked string
	e := fake(t, false, func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.Query().Get("fromImage") + " " + r.URL.Query().Get("tag")
		_, _ = w.Write([]byte("{\"status\": \"Pulling\"}\n{\"error\": \"toomanyrequests\"}\n"))
	})
	for name, want := range map[string]string{"redis": "redis latest", "host:5000/redis": "host:5000/redis latest", "host:5000/redis:7": "host:5000/redis 7"} {
		if err := e.Pull(t.Context(), name); err == nil || err.Error() != "toomanyrequests" {
			t.Errorf("Pull = %v, want the error of the second line", err)
		}
		if asked != want {
			t.Errorf("Pull of %s asked for %q, want %q", name, asked, want)
		}
	}
}

func TestRequestsEndWithTheirContext(t *testing.T) {
	e := fake(t, false, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := e.Wait(ctx, "x"); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait = %v", err)
	}
}

func FuzzDemultiplex(f *testing.F) {
	f.Add([]byte("\x01\x00\x00\x00\x00\x00\x00\x02hi\x02\x00\x00\x00\x00\x00\x00\x01!"))
	f.Add([]byte("\x01\x00\x00\x00\x00\x00\x00\x05hi"))
	f.Add([]byte("\x07\x00\x00\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		var out bytes.Buffer
		if err := demultiplex(&out, bytes.NewReader(stream)); err == nil && out.Len() > len(stream) {
			t.Errorf("%d bytes of output in a stream of %d", out.Len(), len(stream))
		}
	})
}

func TestDemultiplex(t *testing.T) {
	for stream, want := range map[string]string{
		"": "",
		"\x01\x00\x00\x00\x00\x00\x00\x02hi\x02\x00\x00\x00\x00\x00\x00\x01!": "hi!",
	} {
		var out bytes.Buffer
		if err := demultiplex(&out, strings.NewReader(stream)); err != nil || out.String() != want {
			t.Errorf("demultiplex(%q) = %q, %v; want %q", stream, out.String(), err, want)
		}
	}
	for _, stream := range []string{"\x01\x00", "\x01\x00\x00\x00\x00\x00\x00\x05hi", "\x07\x00\x00\x00\x00\x00\x00\x00"} {
		if err := demultiplex(new(bytes.Buffer), strings.NewReader(stream)); err == nil {
			t.Errorf("demultiplex(%q) saw nothing wrong", stream)
		}
	}
}

package client_test

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/internal/client"
)

var update = flag.Bool("update", false, "rewrite golden files")

const schemaFile = "../../docs/client-protocol.schema.json"

func TestSchemaFileIsCurrent(t *testing.T) {
	if *update {
		if err := os.WriteFile(schemaFile, client.Schema(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(client.Schema(), want) {
		t.Errorf("%s is not what the program says: run with -update", schemaFile)
	}
}

// Whoever reads the specification must find every capability in it.
func TestSpecificationNamesAllCapabilities(t *testing.T) {
	doc, err := os.ReadFile("../../docs/client-protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range client.Capabilities() {
		if !strings.Contains(string(doc), "\n| `"+c+"` |") {
			t.Errorf("docs/client-protocol.md has no line on the capability %s", c)
		}
	}
}

// The session that the specification prints must be valid, line by line.
func TestSessionOfTheSpecificationIsValid(t *testing.T) {
	doc, err := os.ReadFile("../../docs/client-protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	var schema jsonschema.Schema
	if err := schema.UnmarshalJSON(client.Schema()); err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(doc)) {
		message, isRequest := strings.CutPrefix(line, "→ ")
		if !isRequest {
			var isAnswer bool
			if message, isAnswer = strings.CutPrefix(line, "← "); !isAnswer {
				continue
			}
		}
		n++
		if kind := valid(t, message); kind == "" {
			t.Errorf("no message of the schema: %s", message)
		}
	}
	if n < 10 {
		t.Errorf("found %d messages in the specification", n)
	}
}

// valid returns the first kind of message that the line is.
func valid(t *testing.T, line string) string {
	t.Helper()
	var schema jsonschema.Schema
	if err := schema.UnmarshalJSON(client.Schema()); err != nil {
		t.Fatal(err)
	}
	for name := range schema.Defs {
		if client.Validate(name, []byte(line)) == nil {
			return name
		}
	}
	return ""
}

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		message, line string
		valid         bool
	}{
		{client.OpenOK, `{"id":1,"type":"ok","protocol":1,"name":"x","capabilities":["wait","reentrant"]}`, true},
		{client.OpenOK, `{"id":1,"type":"ok","protocol":2,"name":"x"}`, false},
		{client.OpenOK, `{"id":1,"type":"ok","protocol":1,"name":"x","capabilities":["waits"]}`, false},
		{client.GrantedOK, `{"id":2,"type":"ok","token":7,"later":{"field":1}}`, true},
		{client.GrantedOK, `{"id":2,"type":"ok","token":"7"}`, false},
		{client.GrantedOK, `{"id":2,"type":"ok","token":7.5}`, false},
		{client.GrantedOK, `{"id":2,"type":"ok","lease_ms":-1}`, false},
		{client.CheckOK, `{"id":3,"type":"ok","value":"true"}`, false},
		{client.ReadOK, `{"id":3,"type":"ok","value":7}`, false},
		{client.NotOK, `{"id":3,"type":"info","error":"timeout"}`, true},
		{client.NotOK, `{"id":3,"type":"error"}`, false},
		{client.LostNote, `{"f":"lost","key":"k"}`, true},
		{client.LostNote, `{"f":"lost"}`, false},
		{history.Acquire, `{"id":2,"f":"acquire","key":"k","wait_ms":10,"op":3}`, true},
		{history.Acquire, `{"id":2,"f":"renew","key":"k"}`, false},
	} {
		if err := client.Validate(c.message, []byte(c.line)); (err == nil) != c.valid {
			t.Errorf("%s %s: %v, want valid %v", c.message, c.line, err, c.valid)
		}
	}
	if client.Validate("nothing", []byte("{}")) == nil {
		t.Error("an unknown message is valid")
	}
}

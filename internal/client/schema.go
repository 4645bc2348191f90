package client

import (
	"encoding/json"
	"fmt"
	"maps"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/lockcheck/lockcheck/history"
)

// Messages by the names that they have in the schema: requests by their f,
// answers by f and type where these have fields of their own.
const (
	OpenOK    = "open-ok"
	GrantedOK = "granted-ok" // of acquire and renew
	CheckOK   = "check-ok"
	ReadOK    = "read-ok"
	WriteOK   = "write-ok"
	PlainOK   = "ok" // of release and close
	NotOK     = "not-ok"
	LostNote  = "lost"
)

// AnswerTo returns the name of the message with which a request is answered.
func AnswerTo(f string, t history.Type) string {
	if t != history.OK {
		return NotOK
	}
	switch f {
	case "open":
		return OpenOK
	case history.Acquire, history.Renew:
		return GrantedOK
	case history.Check:
		return CheckOK
	case history.Read:
		return ReadOK
	case history.Write:
		return WriteOK
	}
	return PlainOK
}

// Schema returns the JSON Schema (draft 2020-12) of all messages of the
// protocol, indented. It has a definition for each kind of message; any line of
// a session is valid against the whole. Fields that it does not name are
// allowed, as the protocol has it.
func Schema() []byte {
	b, err := json.MarshalIndent(protocolSchema(), "", "  ")
	if err != nil {
		panic(err) // a schema that contradicts itself: a test marshals it
	}
	return append(b, '\n')
}

// Validate checks a line against the definition of a message. A field that is
// null counts as missing.
func Validate(message string, line []byte) error {
	root := protocolSchema()
	if root.Defs[message] == nil {
		return fmt.Errorf("the protocol has no message %q", message)
	}
	root.AnyOf = []*jsonschema.Schema{ref(message)}
	resolved, err := root.Resolve(nil)
	if err != nil {
		return err
	}
	var v map[string]any
	if err := json.Unmarshal(line, &v); err != nil {
		return err
	}
	maps.DeleteFunc(v, func(_ string, field any) bool { return field == nil })
	return resolved.Validate(v)
}

func ref(message string) *jsonschema.Schema {
	return &jsonschema.Schema{Ref: "#/$defs/" + message}
}

func protocolSchema() *jsonschema.Schema {
	id := property{"id", integer(1, "of the request, which its answer repeats"), true}
	key := property{"key", text1("name of the lock"), true}
	op := property{"op", integer(0, "index of the invocation in the history"), false}
	url := property{"url", text1("of the resource"), true}
	token := property{"token", &jsonschema.Schema{Type: "integer", Description: "fencing token"}, false}
	request := func(f, doc string, more ...property) *jsonschema.Schema {
		return object(doc, append([]property{id, {"f", constant(f), true}}, more...)...)
	}
	ok := func(doc string, more ...property) *jsonschema.Schema {
		return object(doc, append([]property{id, {"type", constant(string(history.OK)), true}}, more...)...)
	}
	wait := property{"wait_ms", integer(0, "how long to wait for the lock; a single try if it is missing"), false}

	server := object("a server of the lock",
		property{"name", text1("unique in the run"), true},
		property{"software", text1("what runs there: redis, etcd, postgres, memory"), true},
		property{"url", text1("as clients reach it"), true})
	capability := &jsonschema.Schema{Type: "string"}
	for _, c := range Capabilities() {
		capability.Enum = append(capability.Enum, c)
	}
	capabilities := &jsonschema.Schema{Type: "array", Items: capability, UniqueItems: true, Description: "what the client can do"}

	messages := []struct {
		name   string
		schema *jsonschema.Schema
	}{
		{"open", request("open", "Request: connect. It comes once, and first.",
			property{"protocol", constant(Version), true},
			property{"process", text1("name of the client in the history"), true},
			property{"servers", &jsonschema.Schema{Type: "array", Items: server}, false},
			property{"ttl_ms", integer(1, "lease to ask for"), false},
			property{"resource_dsn", text1("database of the protected object, if it is in PostgreSQL"), false})},
		{history.Acquire, request(history.Acquire, "Request: take the lock.", key, wait, op)},
		{history.Renew, request(history.Renew, "Request: extend the lease of the present grant.", key, op)},
		{history.Release, request(history.Release, "Request: give the lock up.", key, op)},
		{history.Check, request(history.Check, "Request: say whether the client believes that it holds.", key, op)},
		{history.Write, request(history.Write, "Request: POST to url.", key, url, op,
			property{"value", &jsonschema.Schema{Type: "string", Description: "what is written; it is part of url"}, false})},
		{history.Read, request(history.Read, "Request: GET url.", key, url, op)},
		{"close", request("close", "Request: answer, then exit.")},

		{OpenOK, ok("Answer to open: connected.",
			property{"protocol", constant(Version), true},
			property{"name", text1("of the client"), true},
			property{"version", &jsonschema.Schema{Type: "string", Description: "of the client"}, false},
			property{"capabilities", capabilities, false})},
		{GrantedOK, ok("Answer to acquire or renew: granted.", token,
			property{"lease_ms", integer(1, "lease that the service promises, from the moment at which the request was read"), false},
			property{"valid_ms", integer(1, "until when the client acts as a holder, from the moment at which the request was read"), false})},
		{CheckOK, ok("Answer to check.", property{"value", &jsonschema.Schema{Type: "boolean", Description: "whether it believes that it holds"}, true})},
		{ReadOK, ok("Answer to read.", property{"value", &jsonschema.Schema{Type: "string", Description: "body of the resource's answer"}, true})},
		{WriteOK, ok("Answer to write: the resource accepted it.", token)},
		{PlainOK, ok("Answer to release or close: it happened.")},
		{NotOK, object("Answer to any request: it certainly did not happen (fail), or nobody knows (info).", id,
			property{"type", &jsonschema.Schema{Type: "string", Enum: []any{string(history.Fail), string(history.Info)}}, true},
			property{"error", &jsonschema.Schema{Type: "string", Description: "why"}, false}, token)},
		{LostNote, object("Loss notice: at any time, at most once for a grant.",
			property{"f", constant(history.Lost), true}, key,
			property{"error", &jsonschema.Schema{Type: "string", Description: "why"}, false})},
	}
	root := &jsonschema.Schema{
		Schema:      "https://json-schema.org/draft/2020-12/schema",
		Title:       "lockcheck client protocol, version 1",
		Description: "One message: a line that the harness writes to a client, or a client to the harness. See docs/client-protocol.md.",
		Defs:        map[string]*jsonschema.Schema{},
	}
	for _, m := range messages {
		root.Defs[m.name] = m.schema
		root.AnyOf = append(root.AnyOf, ref(m.name))
	}
	return root
}

// property is a field of a message.
type property struct {
	name     string
	schema   *jsonschema.Schema
	required bool
}

func object(doc string, fields ...property) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "object", Description: doc, Properties: map[string]*jsonschema.Schema{}}
	for _, f := range fields {
		s.Properties[f.name] = f.schema.CloneSchemas() // a schema may be in one place only
		s.PropertyOrder = append(s.PropertyOrder, f.name)
		if f.required {
			s.Required = append(s.Required, f.name)
		}
	}
	return s
}

func constant(v any) *jsonschema.Schema { return &jsonschema.Schema{Const: &v} }

func text1(doc string) *jsonschema.Schema {
	one := 1
	return &jsonschema.Schema{Type: "string", MinLength: &one, Description: doc}
}

func integer(least float64, doc string) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "integer", Minimum: &least, Description: doc}
}

package main

import (
	"bytes"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

func TestStack(t *testing.T) {
	const in = `
name: x
services:
  b:
    image: redis:7.4
    healthcheck: {test: [CMD, "true"]}
    depends_on: {a: {condition: service_healthy}}
    networks: {clients: null}
    ports: [{mode: ingress, host_ip: 127.0.0.1, target: 6379, published: "0", protocol: tcp}]
networks:
  clients: {name: x_clients, ipam: {}}
`
	const want = `
version: "3.8"
services:
  b:
    image: redis:7.4
    hostname: b
    networks: {clients: null}
    ports: [{mode: host, target: 6379, protocol: tcp}]
    deploy: {replicas: 1, endpoint_mode: dnsrr, restart_policy: {condition: on-failure}}
networks:
  clients: {driver: overlay, attachable: true}
`
	var out bytes.Buffer
	if err := run(strings.NewReader(in), &out); err != nil {
		t.Fatal(err)
	}
	var got, wanted any
	if err := yaml.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(want), &wanted); err != nil {
		t.Fatal(err)
	}
	a, _ := yaml.Marshal(got)
	b, _ := yaml.Marshal(wanted)
	if !bytes.Equal(a, b) {
		t.Errorf("the stack is\n%s\nwant\n%s", a, b)
	}
}

func TestWhatIsNoStack(t *testing.T) {
	for in, want := range map[string]string{
		"":     "read what docker compose config writes",
		"x: 1": "no services",
		"- 1":  "read what",
		"services: {a: {image: x}}\nconfigs: {c: {content: text}}": "inline",
	} {
		if err := run(strings.NewReader(in), new(bytes.Buffer)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("of %q: %v, want an error with %q", in, err, want)
		}
	}
}

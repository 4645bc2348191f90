# Everything that is done to this project, by name. `make help` lists it.

GO          ?= go
BIN         := bin/lockcheck
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
PLATFORMS   := linux/amd64 linux/arm64 darwin/amd64 darwin/arm64
TTL         ?= 1s

.DEFAULT_GOAL := help
.PHONY: help build run servers test unit docker-test lint cross fuzz soak vuln bench bench-locks bench-harness matrix mutants track-record docs man fmt clean

help: ## list what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build bin/lockcheck
	$(GO) build -trimpath -o $(BIN) ./cmd/lockcheck

run: servers build ## reproduce the GC-pause double holder on every backend, unfenced and fenced
	$(BIN) verify gc-pause --resource unfenced,fenced --ttl $(TTL)

servers: ## install the servers that are missing, where the system lets us
	@scripts/install-servers

test: servers lint cross unit ## all that CI runs: lint, builds for all platforms, tests with the race detector

unit: ## tests alone
	$(GO) test -race -timeout 15m ./...

docker-test: ## all tests of containers; starts an engine if none answers and it may, and ends that one
	@ours=; docker version >/dev/null 2>&1 || ours=1; \
	scripts/docker-engine && images=$$(scripts/docker-images) && eval "$$images" && \
	LOCKCHECK_DOCKER_TESTS=1 $(GO) test -timeout 40m -run 'Contain|Engine|Cleanup|Cleaned|Runtime' \
		./internal/deploy/... ./backends/conformance ./cmd/lockcheck; \
	status=$$?; [ -z "$$ours" ] || scripts/docker-engine stop; exit $$status

lint: ## vet, staticcheck and gofmt
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...
	@test -z "$$(gofmt -l .)" || { gofmt -l . ; echo "these files are not formatted: run make fmt"; exit 1; }

cross: ## build for all platforms
	@for p in $(PLATFORMS); do \
		echo "build for $$p"; \
		CGO_ENABLED=0 GOOS=$${p%/*} GOARCH=$${p#*/} $(GO) build -o /dev/null ./cmd/lockcheck || exit 1; \
	done

FUZZTIME ?= 30s
fuzz: ## run every fuzz target for FUZZTIME
	@for pkg in $$($(GO) list ./...); do \
		for f in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
			echo "$$pkg $$f"; \
			$(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) $$pkg || exit 1; \
		done; \
	done

SOAKTIME ?= 2h
soak: build ## run for SOAKTIME under random faults, and see that the harness's memory does not grow
	scripts/soak $(BIN) $(SOAKTIME)

GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0
vuln: ## look for known vulnerabilities; not part of lint, since it asks vuln.go.dev each time
	$(GO) run $(GOVULNCHECK) ./...

bench: build ## exact checkers, porcupine and decoding alone, in one run: the tables of docs/performance.md (LARGE=1: also 10^7 operations)
	$(GO) run ./checker/internal/bench $(if $(LARGE),-large)

bench-locks: build ## what locks cost: the tables of docs/performance.md
	$(BIN) bench --format markdown

bench-harness: build ## what the harness adds: the tables of docs/performance.md
	$(BIN) bench --harness --format markdown

MATRIX ?= $${TMPDIR:-/tmp}/lockcheck-matrix
matrix: build ## what each lock is fit for: the table of docs/matrix.md, from a run of a quarter of an hour
	$(BIN) matrix --full --seed 1 --format markdown --out $(MATRIX) > $(MATRIX).md
	cp $(MATRIX)/matrix.json docs/matrix.json
	{ sed '/^<!-- The rest is written/q' docs/matrix.md; echo; cat $(MATRIX).md; } > $(MATRIX).new && mv $(MATRIX).new docs/matrix.md

mutants: build ## show that the suite ci catches all locks that are broken on purpose, and no correct one
	$(BIN) mutants --out $${TMPDIR:-/tmp}/lockcheck-mutants

RUNS    ?= 10
REPORTS ?=
track-record: ## repeat the public reports of locks that failed, RUNS times each: docs/track-record.md (REPORTS="bug-redsync-126": these alone)
	$(GO) run ./internal/trackrecord/cmd -n $(RUNS) $(REPORTS)

docs: build ## write docs/reference from the program
	$(BIN) reference docs/reference

man: build ## write the man pages into bin/man
	$(BIN) reference --man bin/man

fmt: ## format the code
	gofmt -w .

clean: ## remove what was built
	rm -rf bin

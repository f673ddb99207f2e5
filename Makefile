# The commands of the house; `make help` lists them.
GO            ?= go
# Without this a program with the race detector waits a second at its end: each
# package's tests, and each node that they start.
RACE          := GORACE="atexit_sleep_ms=0 $$GORACE"
# Tests write to memory where there is room for it; what they are built from and
# into stays on the disk.
SCRATCH       := bash integration/scratch.sh
GOLANGCI_LINT ?= v2.15.0
FUZZTIME      ?= 500000x
ROUNDS        ?= 5
SOAK          ?= 10m

.PHONY: help build test test-kafka test-long lint vet fuzz bench bench-cluster bench-kafka bench-mysql bench-smoke setup soak ui
help:
	@echo 'make build        bin/penstock'
	@echo 'make test         every test, with the race detector'
	@echo 'make test-kafka   the Kafka suites whole: every program, client and version of every API'
	@echo 'make test-long    histories and partitions of clusters, Kafka at length, for about 45 minutes'
	@echo 'make lint         golangci-lint, as .golangci.yml says'
	@echo 'make fuzz         each fuzz target FUZZTIME times (default 500000x)'
	@echo 'make bench        against HAProxy, nginx and go-control-plane, ROUNDS rounds (default 5)'
	@echo 'make bench-cluster clusters of 3, 5 and 50 nodes, beside plain Raft; needs root'
	@echo 'make bench-kafka  a real Kafka broker direct, behind HAProxy and behind Penstock'
	@echo 'make bench-mysql  MySQL sessions beside HAProxy: queries, logins, moves, memory'
	@echo 'make bench-smoke  each Go benchmark once'
	@echo 'make soak         2,000 connections and a change a second for SOAK (default 10m)'
	@echo 'make ui           node/ui/dist, the dashboard, from its sources in node/ui/app; needs npm'
	@echo 'make setup        install the peers that integration tests and benchmarks use'

build:
	CGO_ENABLED=0 $(GO) build -o bin/penstock ./cmd/penstock

# Three packages at a time on any machine: tests wait for conditions, however
# long these take, and clusters elect leaders by the clock. The two that take the
# longest, and mostly wait, come first: the third place keeps two cores busy with
# all the others. Some tests run without the race detector, in a second step. What
# vet finds is make vet's to say. With PENSTOCK_SUITE=whole, Kafka's suites are
# whole.
test: setup
	$(RACE) $(SCRATCH) $(GO) test -race -vet=off -p 3 -timeout 30m ./integration/kafka ./integration ./node/... ./...
	bash integration/norace.sh

test-kafka: setup
	PENSTOCK_SUITE=whole $(RACE) $(SCRATCH) $(GO) test -race -vet=off -count=1 -timeout 30m ./integration/kafka

# 100 histories of reads and changes, five nodes in partitions of every shape.
test-long: setup
	PENSTOCK_LONG=1 $(GO) test -count=1 -timeout 4h -run 'Histories|Partitions|TenantChanges' -v ./integration
	PENSTOCK_LONG=1 $(GO) test -count=1 -timeout 1h -v ./integration/kafka
	PENSTOCK_LONG=1 $(GO) test -count=1 -timeout 1h -run RemainingVotersElect -v ./consensus/replica

vet:
	$(GO) vet ./...

lint:
	"$$(bash integration/setup.sh golangci-lint $(GOLANGCI_LINT))" run

fuzz:
	FUZZTIME=$(FUZZTIME) bash integration/fuzz.sh

bench: setup build
	$(GO) run ./integration/bench -rounds $(ROUNDS)
	$(GO) run ./integration/bench -rounds $(ROUNDS) -workers 2 -only "round trip|bulk|connection"
	$(GO) run ./integration/xdsbench -rounds $(ROUNDS)
	$(GO) test -run '^$$' -bench '^Benchmark(Permission|ChangeOneOf10000|Limit|MutualTLS)$$' -benchmem ./routing/permit ./routing/limit ./node/tlsconfig

bench-cluster: build
	$(GO) run ./integration/clusterbench -rounds $(ROUNDS) -v

bench-kafka: setup build
	$(GO) run ./integration/kafkabench -rounds $(ROUNDS) -v
	$(GO) run ./integration/clusterbench -rounds $(ROUNDS) -only "virtual clusters"
	$(GO) test -run '^$$' -bench '^BenchmarkMetadata' -benchmem ./kafka/wire ./kafka/filter/brokeraddress ./kafka/filter/multitenant

bench-mysql: setup build
	$(GO) run ./integration/mysqlbench -rounds $(ROUNDS) -v
	$(GO) test -run '^$$' -bench '^BenchmarkQuery$$' -benchmem ./mysql/session

# Packages without a benchmark need not be linked.
bench-smoke: setup build
	$(GO) test -vet=off -short -run '^$$' -bench . -benchtime 1x $$(git grep -l '^func Benchmark' -- '*_test.go' | xargs dirname | sort -u | sed 's,^,./,')
	$(GO) run ./integration/bench -only '^(permission|rate limit|mutual TLS):' -rounds 1 -window 100ms
	$(GO) run ./integration/kafkabench -short
	$(GO) run ./integration/mysqlbench -short

setup:
	bash integration/setup.sh

soak: build
	$(GO) run ./integration/soak -for $(SOAK)

# The result is committed, so that Go alone builds everything else.
ui:
	cd node/ui/app && npm ci --ignore-scripts --no-audit --no-fund && npm run --silent check && npm run --silent build

#!/bin/sh
# What each role may do in Kafka: no more than it needs. Generated from addresses.py by `make docs`; CI compares.
#
#   BOOTSTRAP=kafka:9093 COMMAND_CONFIG=admin.properties FLEET=shop-1a2b3c4d sh deploy/kafka/acls.sh
#
# Run it as one who may alter ACLs, with Kafka's bin folder in PATH, and again after an upgrade: it only adds.
# docs/security.md says how, and who is who.
#   FLEET    what `spillway topics` printed. Without it only `topics` gets its rights, which come first.
#   PREFIX   SPILLWAY_KAFKA_TOPIC_PREFIX, where it is set
#   USERS    what stands before a role in its principal
set -eu
: "${BOOTSTRAP:?host:port of a broker}" "${COMMAND_CONFIG:?file of properties by which an administrator connects}"
FLEET="${FLEET:-}" PREFIX="${PREFIX:-}" USERS="${USERS:-User:spillway-}"

allow() {
    roles=$1
    shift
    for role in $roles; do set -- --allow-principal "$USERS$role" "$@"; done
    "${KAFKA_ACLS:-kafka-acls.sh}" --bootstrap-server "$BOOTSTRAP" --command-config "$COMMAND_CONFIG" --add "$@"
}

# topics: `spillway topics` creates the topics and forms the fleet
allow topics --operation Create --operation DescribeConfigs --resource-pattern-type prefixed \
    --topic "${PREFIX}spillway."
allow topics --operation Read --topic "${PREFIX}spillway.fleet.v1"
allow topics --operation Write --topic "${PREFIX}spillway.fleet.v1"
allow topics --operation Write --transactional-id "${PREFIX}topics"
allow topics --operation Describe --resource-pattern-type prefixed --topic "${PREFIX}spillway."

if [ -z "$FLEET" ]; then
    echo "Next: spillway topics, as ${USERS}topics; then this again, with the FLEET that it prints." >&2
    exit 0
fi

# Which topics there are, and where they end: whoever opens the log looks whether it is whole.
allow 'snapshot propagator planner hpa vk-bridge descheduler cli publisher' --operation Describe \
    --resource-pattern-type prefixed --topic "${PREFIX}spillway."

# snapshot
allow snapshot --operation Read --topic "${PREFIX}spillway.fleet.v1" --topic "${PREFIX}spillway.clusters.v1" \
    --topic "${PREFIX}spillway.capacity.v1" --topic "${PREFIX}spillway.capacity-changes.v1" \
    --topic "${PREFIX}spillway.pending.v1" --topic "${PREFIX}spillway.pods.v1" \
    --topic "${PREFIX}spillway.scale-policies.v1"
allow snapshot --operation Write --topic "${PREFIX}spillway.capacity.v1" \
    --topic "${PREFIX}spillway.capacity-changes.v1" --topic "${PREFIX}spillway.pending.v1" \
    --topic "${PREFIX}spillway.pods.v1" --topic "${PREFIX}spillway.dead-letters.v1"
allow snapshot --operation Read --group "${FLEET}.snapshot"

# propagator
allow propagator --operation Read --topic "${PREFIX}spillway.fleet.v1" --topic "${PREFIX}spillway.clusters.v1" \
    --topic "${PREFIX}spillway.workloads.v1" --topic "${PREFIX}spillway.dependencies.v1" \
    --topic "${PREFIX}spillway.placements.v1" --topic "${PREFIX}spillway.workload-status.v1" \
    --topic "${PREFIX}spillway.adoptions.v1" --topic "${PREFIX}spillway.shapes-asked.v1" \
    --topic "${PREFIX}spillway.shapes.v1"
allow propagator --operation Write --topic "${PREFIX}spillway.workload-status.v1" \
    --topic "${PREFIX}spillway.found-workloads.v1" --topic "${PREFIX}spillway.shapes.v1" \
    --topic "${PREFIX}spillway.dead-letters.v1"
allow propagator --operation Read --group "${FLEET}.propagator"

# planner
allow planner --operation Read --topic "${PREFIX}spillway.fleet.v1" --topic "${PREFIX}spillway.turns.planner.v1" \
    --topic "${PREFIX}spillway.clusters.v1" --topic "${PREFIX}spillway.capacity.v1" \
    --topic "${PREFIX}spillway.capacity-changes.v1" --topic "${PREFIX}spillway.pending.v1" \
    --topic "${PREFIX}spillway.workloads.v1" --topic "${PREFIX}spillway.dependencies.v1" \
    --topic "${PREFIX}spillway.placements.v1" --topic "${PREFIX}spillway.capacity-needed.v1" \
    --topic "${PREFIX}spillway.decisions.v1" --topic "${PREFIX}spillway.workload-status.v1" \
    --topic "${PREFIX}spillway.brakes.v1" --topic "${PREFIX}spillway.found-workloads.v1" \
    --topic "${PREFIX}spillway.shapes.v1" --topic "${PREFIX}spillway.scale-policies.v1" \
    --topic "${PREFIX}spillway.scale.v1"
allow planner --operation Write --topic "${PREFIX}spillway.turns.planner.v1" --topic "${PREFIX}spillway.clusters.v1" \
    --topic "${PREFIX}spillway.workloads.v1" --topic "${PREFIX}spillway.dependencies.v1" \
    --topic "${PREFIX}spillway.placements.v1" --topic "${PREFIX}spillway.capacity-needed.v1" \
    --topic "${PREFIX}spillway.decisions.v1" --topic "${PREFIX}spillway.brakes.v1" \
    --topic "${PREFIX}spillway.adoptions.v1" --topic "${PREFIX}spillway.shapes-asked.v1" \
    --topic "${PREFIX}spillway.load.v1" --topic "${PREFIX}spillway.dead-letters.v1"
allow planner --operation Read --group "${FLEET}.planner.standby"
allow planner --operation Write --transactional-id "${PREFIX}${FLEET}.planner"

# hpa
allow hpa --operation Read --topic "${PREFIX}spillway.fleet.v1" --topic "${PREFIX}spillway.workloads.v1" \
    --topic "${PREFIX}spillway.turns.hpa.v1" --topic "${PREFIX}spillway.pods.v1" --topic "${PREFIX}spillway.load.v1" \
    --topic "${PREFIX}spillway.backlog.v1" --topic "${PREFIX}spillway.scale-policies.v1" \
    --topic "${PREFIX}spillway.scale-state.v1" --topic "${PREFIX}spillway.scale.v1"
allow hpa --operation Write --topic "${PREFIX}spillway.turns.hpa.v1" --topic "${PREFIX}spillway.load.v1" \
    --topic "${PREFIX}spillway.backlog.v1" --topic "${PREFIX}spillway.scale-policies.v1" \
    --topic "${PREFIX}spillway.scale-state.v1" --topic "${PREFIX}spillway.scale.v1" \
    --topic "${PREFIX}spillway.dead-letters.v1"
allow hpa --operation Read --group "${FLEET}.hpa.standby"
allow hpa --operation Write --transactional-id "${PREFIX}${FLEET}.hpa"

# vk-bridge
allow vk-bridge --operation Read --topic "${PREFIX}spillway.fleet.v1" --topic "${PREFIX}spillway.clusters.v1" \
    --topic "${PREFIX}spillway.pending.v1" --topic "${PREFIX}spillway.workloads.v1" \
    --topic "${PREFIX}spillway.capacity-needed.v1" --topic "${PREFIX}spillway.brakes.v1" \
    --topic "${PREFIX}spillway.lending-rules.v1" --topic "${PREFIX}spillway.lending.v1" \
    --topic "${PREFIX}spillway.recalls.v1"
allow vk-bridge --operation Write --topic "${PREFIX}spillway.lending.v1" --topic "${PREFIX}spillway.node-usage.v1" \
    --topic "${PREFIX}spillway.dead-letters.v1"
allow vk-bridge --operation Read --group "${FLEET}.vk-bridge"

# descheduler
allow descheduler --operation Read --topic "${PREFIX}spillway.fleet.v1" --topic "${PREFIX}spillway.clusters.v1" \
    --topic "${PREFIX}spillway.capacity.v1" --topic "${PREFIX}spillway.capacity-changes.v1" \
    --topic "${PREFIX}spillway.pending.v1" --topic "${PREFIX}spillway.workloads.v1" \
    --topic "${PREFIX}spillway.capacity-needed.v1" --topic "${PREFIX}spillway.brakes.v1" \
    --topic "${PREFIX}spillway.turns.descheduler.v1" --topic "${PREFIX}spillway.lending-rules.v1" \
    --topic "${PREFIX}spillway.lending.v1" --topic "${PREFIX}spillway.recalls.v1" \
    --topic "${PREFIX}spillway.node-usage.v1"
allow descheduler --operation Write --topic "${PREFIX}spillway.turns.descheduler.v1" \
    --topic "${PREFIX}spillway.lending-rules.v1" --topic "${PREFIX}spillway.recalls.v1" \
    --topic "${PREFIX}spillway.dead-letters.v1"
allow descheduler --operation Read --group "${FLEET}.descheduler.standby"
allow descheduler --operation Write --transactional-id "${PREFIX}${FLEET}.descheduler"

# cli: `spillway events` reads every topic and writes none; `spillway doctor` looks at configs and brokers' disks
allow cli --operation Read --topic "${PREFIX}spillway.fleet.v1" --topic "${PREFIX}spillway.turns.planner.v1" \
    --topic "${PREFIX}spillway.clusters.v1" --topic "${PREFIX}spillway.capacity.v1" \
    --topic "${PREFIX}spillway.capacity-changes.v1" --topic "${PREFIX}spillway.pending.v1" \
    --topic "${PREFIX}spillway.workloads.v1" --topic "${PREFIX}spillway.dependencies.v1" \
    --topic "${PREFIX}spillway.placements.v1" --topic "${PREFIX}spillway.capacity-needed.v1" \
    --topic "${PREFIX}spillway.decisions.v1" --topic "${PREFIX}spillway.workload-status.v1" \
    --topic "${PREFIX}spillway.brakes.v1" --topic "${PREFIX}spillway.adoptions.v1" \
    --topic "${PREFIX}spillway.found-workloads.v1" --topic "${PREFIX}spillway.shapes-asked.v1" \
    --topic "${PREFIX}spillway.shapes.v1" --topic "${PREFIX}spillway.turns.hpa.v1" --topic "${PREFIX}spillway.pods.v1" \
    --topic "${PREFIX}spillway.load.v1" --topic "${PREFIX}spillway.backlog.v1" \
    --topic "${PREFIX}spillway.scale-policies.v1" --topic "${PREFIX}spillway.scale-state.v1" \
    --topic "${PREFIX}spillway.scale.v1" --topic "${PREFIX}spillway.turns.descheduler.v1" \
    --topic "${PREFIX}spillway.lending-rules.v1" --topic "${PREFIX}spillway.lending.v1" \
    --topic "${PREFIX}spillway.recalls.v1" --topic "${PREFIX}spillway.node-usage.v1" \
    --topic "${PREFIX}spillway.dead-letters.v1"
allow cli --operation DescribeConfigs --resource-pattern-type prefixed --topic "${PREFIX}spillway."
allow cli --operation Describe --cluster

# publisher: who publishes loads and backlogs, and nothing else
allow publisher --operation Read --topic "${PREFIX}spillway.fleet.v1"
allow publisher --operation Write --topic "${PREFIX}spillway.load.v1" --topic "${PREFIX}spillway.backlog.v1"

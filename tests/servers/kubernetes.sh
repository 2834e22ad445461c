#!/usr/bin/env bash
# Builds the servers of the Kubernetes tests from their Go module: kubernetes.sh VERSION BINARY (1.35.4, say).
# Downloads 760 MB of modules, takes some 9 minutes of CPU, and leaves one binary of 160 MB.
set -euo pipefail
version=${1#1.} binary=$2
here=$(cd "$(dirname "$0")" && pwd)
source=$(mktemp -d)
trap 'rm -rf "$source"' EXIT
cp "$here/kubernetes.go" "$source/main.go"
cd "$source"
mod=$(go env GOMODCACHE)/cache/download/k8s.io/kubernetes/@v/v1.$version.mod
go mod download "k8s.io/kubernetes@v1.$version"
{ # the module replaces its own parts by directories of its repository: they are published, too, with versions 0.…
	echo "module kubernetes"
	grep -E '^(go|godebug) ' "$mod"
	echo "require k8s.io/kubernetes v1.$version"
	sed -n '/^replace (/,/^)/p' "$mod" | sed -E "s#=> \./staging/.*/([a-z0-9-]+)\$#=> k8s.io/\1 v0.$version#"
} >go.mod
go mod tidy
flag=k8s.io/component-base/version
go build -ldflags "-s -w -X $flag.gitVersion=v1.$version -X $flag.gitMajor=1 -X $flag.gitMinor=${version%%.*}" -o kubernetes .
mkdir -p "$(dirname "$binary")"
mv kubernetes "$binary.new" && mv "$binary.new" "$binary"

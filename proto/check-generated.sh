#!/bin/sh
# Fails unless the committed Go of proto/ is what the .proto files generate now:
# nothing changed, missing or left over. Needs no network once the modules of
# tools/ and tools/gen/ are fetched, and writes only to a temporary directory.
set -eu
cd "$(dirname "$0")"

fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
go tool -modfile=../tools/go.mod buf generate --output "$fresh"

# Hand-written files beside the generated ones: the .proto files and tests.
if ! diff -r -u --exclude='*.proto' --exclude='*_test.go' budget "$fresh/budget"; then
  echo "proto: generated code is out of date; run: cd proto && go tool -modfile=../tools/go.mod buf generate" >&2
  exit 1
fi

#!/usr/bin/env bash
# Builds libhdfs.so, through which PyArrow talks to HDFS: libhdfs.sh DIRECTORY. Hadoop's is in its
# distribution alone; its C sources, version 3.3, are also in the crate hdfs-sys. Needs cargo, a C compiler and a JDK.
set -euo pipefail
directory=$1
jdk=${JAVA_HOME:-$(dirname "$(dirname "$(readlink -f "$(command -v java)")")")}
[ -e "$jdk/include/jni.h" ] || { echo "no jni.h in $jdk: install the JDK (openjdk-17-jdk-headless)" >&2; exit 1; }
source=$(mktemp -d)
trap 'rm -rf "$source"' EXIT
mkdir -p "$source/src" "$directory"
touch "$source/src/lib.rs"
printf '[package]\nname = "libhdfs"\nversion = "0.0.0"\n[dependencies]\nhdfs-sys = "=0.3.1"\n' >"$source/Cargo.toml"
cargo vendor --quiet --manifest-path "$source/Cargo.toml" "$source/vendor" >/dev/null
c=$source/vendor/hdfs-sys/libhdfs
from=$c/hdfs_3_3
mapfile -t files < <(find "$from" -name '*.c' -not -path '*/windows/*')
cc -O2 -w -shared -fPIC -D_GNU_SOURCE -I"$c" -I"$from" -I"$from/include" -I"$from/os" -I"$from/os/posix" \
	-I"$jdk/include" -I"$jdk/include/linux" -o "$source/libhdfs.so" "${files[@]}" \
	-L"$jdk/lib/server" -ljvm -Wl,-rpath,"$jdk/lib/server"
mv "$source/libhdfs.so" "$directory/libhdfs.so.new" && mv "$directory/libhdfs.so.new" "$directory/libhdfs.so"

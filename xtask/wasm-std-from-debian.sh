#!/usr/bin/env bash
# Installs the standard library of wasm32-wasip2 into the active toolchain without rustup's server.
#
# Debian packages the sources of each Rust release (rust-src) and the C library that WASI programs link with
# (wasi-libc); neither depends on the machine's architecture or on the Debian release. The library is compiled from
# the sources of exactly the active rustc's version and laid where rustup would have put it.
#
# Needs curl, xz, dpkg-deb and write access to the toolchain. DEBIAN_MIRROR names another mirror than apt's.
set -euo pipefail

readonly TARGET=wasm32-wasip2
readonly SUITES=(trixie-backports forky sid trixie bookworm-backports)

fail() { printf 'wasm-std-from-debian: %s\n' "$*" >&2; exit 1; }

for tool in curl xz dpkg-deb cargo rustc; do
    command -v "$tool" >/dev/null || fail "needs \`$tool\`, which is not installed"
done

sysroot=$(rustc --print sysroot)
release=$(rustc --version | cut -d ' ' -f 2)
destination=$sysroot/lib/rustlib/$TARGET/lib
mkdir -p "$destination/self-contained" || fail "cannot write below $sysroot"

if [[ -n ${DEBIAN_MIRROR:-} ]]; then
    mirror=$DEBIAN_MIRROR
else
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 2>/dev/null | grep --max-count=1 '/debian/\?$') ||
        mirror=http://deb.debian.org/debian
fi
mirror=${mirror%/}

scratch=$(mktemp --directory)
trap 'rm -rf "$scratch"' EXIT

# index SUITE: the suite's list of packages, fetched once; fails where the mirror has no such suite.
index() {
    local list=$scratch/$1.list
    if [[ ! -e $list ]]; then
        curl --fail --silent --show-error --location --retry 2 "$mirror/dists/$1/main/binary-amd64/Packages.xz" 2>/dev/null |
            xz --decompress >"$list" 2>/dev/null || { rm -f "$list"; return 1; }
    fi
    printf '%s\n' "$list"
}

# fetch PACKAGE VERSION: unpacks the package, whose version starts with VERSION, into a folder of its name.
fetch() {
    local package=$1 version=$2 suite list file
    for suite in "${SUITES[@]}"; do
        list=$(index "$suite") || continue
        file=$(awk -v package="$package" -v version="$version" '
            $1 == "Package:"  { this = $2 }
            $1 == "Version:"  { fits = index($2, version) == 1 }
            $1 == "Filename:" && this == package && fits { print $2; exit }
        ' "$list")
        [[ -n $file ]] || continue
        printf 'fetching %s from %s\n' "${file##*/}" "$suite"
        curl --fail --silent --show-error --location --retry 2 --output "$scratch/$package.deb" "$mirror/$file"
        dpkg-deb --extract "$scratch/$package.deb" "$scratch/$package"
        return
    done
    fail "Debian has no $package ${version:-of any version}: install the target with \`rustup target add $TARGET\`"
}

fetch rust-src "$release"
fetch wasi-libc ""

libc=$(find "$scratch/wasi-libc" -path "*/$TARGET/libc.a" -printf '%h' -quit)
[[ -n $libc ]] || fail "wasi-libc holds no libc.a for $TARGET"
manifest=$scratch/rust-src/usr/src/rustc-$release/library/sysroot/Cargo.toml
[[ -f $manifest ]] || fail "rust-src does not hold the sources of Rust $release"

# The bootstrap switch lets a stable compiler build its own standard library; what it marks as unstable must stay so.
printf 'compiling the standard library of Rust %s for %s\n' "$release" "$TARGET"
env -u CARGO_TARGET_DIR RUSTC_BOOTSTRAP=1 \
    RUSTFLAGS="-Zforce-unstable-if-unmarked -Cembed-bitcode=yes -Lnative=$libc" \
    cargo build --quiet --release --manifest-path "$manifest" --features panic-unwind \
    --target "$TARGET" --target-dir "$scratch/build"

cp "$libc"/libc.a "$libc"/crt1-command.o "$libc"/crt1-reactor.o "$destination/self-contained/"
cp "$scratch/build/$TARGET/release/deps/"*.rlib "$destination/"
printf '%s is installed in %s\n' "$TARGET" "$destination"

//! What some bytes are, before and after compiling them: a component or something else, for which version of the
//! contract, as a source or a destination, and whether everything that it imports is on offer.

use wasmtime::Engine;
use wasmtime::component::Component;
use wasmtime::component::types::ComponentItem;

use crate::connector::{Error, ErrorKind, Result};
use crate::pipeline::Limit;

/// The version of the contract that this host serves.
pub(super) const CONTRACT: &str = "0.1.0";

/// Refuses what cannot be a component, by its first bytes, and what is too large to be compiled: that takes time and
/// memory in proportion.
pub(super) fn check_bytes(origin: &str, bytes: &[u8], most_mib: u64) -> Result<()> {
    let what = match bytes {
        [] => "is empty",
        [0, b'a', b's', b'm', 0x0d, 0, 1, 0, ..] => {
            let mib = bytes.len().div_ceil(1 << 20) as u64;
            if mib <= most_mib {
                return Ok(());
            }
            return Err(refused(
                origin,
                &format!(
                    "has {mib} MiB, and its limit is {most_mib} MiB; {}",
                    raise(Limit::ComponentMib)
                ),
            ));
        }
        [0, b'a', b's', b'm', 1, 0, 0, 0, ..] => "is a core WebAssembly module, not a component",
        [0, b'a', b's', b'm', ..] => "is WebAssembly of another version",
        [0x7f, b'E', b'L', b'F', ..] => "is a native program, not a WebAssembly component",
        _ if bytes.trim_ascii_start().starts_with(b"(") => "is WebAssembly text, not a compiled component",
        _ => "is not a WebAssembly component",
    };
    Err(refused(
        origin,
        &format!("{what}; build the connector with `cargo build --target wasm32-wasip2` and the SDK"),
    ))
}

/// How a person raises a limit.
pub(super) fn raise(limit: Limit) -> String {
    format!(
        "raise `limits: {{ {} }}` beside the connector in the pipeline file if it is right",
        limit.name()
    )
}

/// An error about a connector that cannot be loaded.
pub(super) fn refused(origin: &str, what: &str) -> Error {
    Error::new(ErrorKind::Config, format!("connector {origin} {what}"))
}

/// Which halves of the contract a component has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Halves {
    pub(super) source: bool,
    pub(super) destination: bool,
}

/// What a component imports and exports.
pub(super) struct Names {
    pub(super) halves: Halves,
    pub(super) imports: Vec<String>,
    pub(super) exports: Vec<String>,
}

/// Checks a component's imports and exports by name.
pub(super) fn check_names(origin: &str, engine: &Engine, component: &Component) -> Result<Names> {
    let ty = component.component_type();
    let mut imports = Vec::new();
    for (name, item) in ty.imports(engine) {
        check_import(name, matches!(item.ty, ComponentItem::ComponentInstance(_)))
            .map_err(|what| refused(origin, &what))?;
        imports.push(name.to_owned());
    }
    let exports: Vec<&str> = ty.exports(engine).map(|(name, _)| name).collect();
    Ok(Names {
        halves: check_exports(&exports).map_err(|what| refused(origin, &what))?,
        imports,
        exports: exports.into_iter().map(str::to_owned).collect(),
    })
}

fn check_import(name: &str, is_interface: bool) -> Result<(), String> {
    let (interface, version) = name.split_once('@').unwrap_or((name, ""));
    let offered = match interface.split_once('/') {
        Some(("setu:connector", "types" | "log" | "net")) if version == CONTRACT => true,
        Some(("setu:connector", _)) if version != CONTRACT => {
            return Err(other_version(version));
        }
        Some((package, _)) => {
            let wasi = ["cli", "clocks", "filesystem", "io", "random", "sockets"];
            let known = package
                .strip_prefix("wasi:")
                .is_some_and(|package| wasi.contains(&package));
            known && version.starts_with("0.2.")
        }
        None => false,
    };
    match offered && is_interface {
        true => Ok(()),
        false => Err(format!(
            "imports `{name}`, which no Setu host offers: a connector may import setu:connector@{CONTRACT} and WASI 0.2"
        )),
    }
}

fn check_exports(exports: &[&str]) -> Result<Halves, String> {
    let has = |name: &str| exports.contains(&format!("setu:connector/{name}@{CONTRACT}").as_str());
    if let Some(other) = exports
        .iter()
        .filter_map(|name| name.strip_prefix("setu:connector/")?.split_once('@'))
        .find(|(_, version)| *version != CONTRACT)
    {
        return Err(other_version(other.1));
    }
    let halves = Halves {
        source: has("source"),
        destination: has("destination"),
    };
    if !has("connector") || !(halves.source || halves.destination) {
        return Err(format!(
            "does not export `setu:connector/connector@{CONTRACT}` with `source` or `destination`: it is a \
             component, but no connector"
        ));
    }
    Ok(halves)
}

fn other_version(version: &str) -> String {
    let version = super::text::printable(version, 64);
    format!(
        "is made for version {version} of the connector contract, and this host serves {CONTRACT}: take a connector \
         or a `setu` that fits"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_component_are_refused_for_what_they_are() {
        let cases: [(&[u8], &str); 7] = [
            (b"", "is empty"),
            (b"\0asm\x01\0\0\0rest", "core WebAssembly module"),
            (b"\0asm\x02\0\0\0", "another version"),
            (b"\x7fELF", "native program"),
            (b"  (component)", "WebAssembly text"),
            (b"#!/bin/sh", "not a WebAssembly component"),
            (b"\0as", "not a WebAssembly component"),
        ];
        for (bytes, expected) in cases {
            let error = check_bytes("./x.wasm", bytes, 64).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.message().contains(expected), "{error}");
            assert!(
                error.message().contains("./x.wasm") && error.message().contains("wasm32-wasip2"),
                "{error}"
            );
        }
        assert!(check_bytes("x", b"\0asm\x0d\0\x01\0", 64).is_ok());
    }

    #[test]
    fn only_what_the_host_offers_can_be_imported() {
        for name in [
            "setu:connector/net@0.1.0",
            "wasi:io/streams@0.2.3",
            "wasi:cli/environment@0.2.0",
        ] {
            assert_eq!(check_import(name, true), Ok(()), "{name}");
        }
        for name in [
            "wasi:http/types@0.2.0",
            "wasi:io/streams@0.3.0",
            "other:thing/x@1.0.0",
            "run",
            "setu:connector/x@0.1.0",
        ] {
            assert!(check_import(name, true).unwrap_err().contains(name), "{name}");
        }
        assert!(
            check_import("setu:connector/net@0.2.0", true)
                .unwrap_err()
                .contains("version 0.2.0")
        );
    }

    #[test]
    fn a_component_is_what_it_exports() {
        let (connector, source) = ("setu:connector/connector@0.1.0", "setu:connector/source@0.1.0");
        assert_eq!(
            check_exports(&[connector, source]),
            Ok(Halves {
                source: true,
                destination: false
            })
        );
        assert!(check_exports(&[connector]).unwrap_err().contains("no connector"));
        assert!(check_exports(&[source]).unwrap_err().contains("no connector"));
        assert!(
            check_exports(&["setu:connector/source@0.2.0"])
                .unwrap_err()
                .contains("version 0.2.0")
        );
    }
}

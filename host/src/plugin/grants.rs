//! What a connector may reach: the grants that its configuration implies and those that the pipeline adds.
//!
//! A pure function of schema, pipeline and base folder; nothing is looked up, opened or created. `files` and
//! `network` enforce what is decided here, `setu plan` prints it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use serde_json::Value;

use super::EffectiveGrant;
use super::address::{self, Endpoint};
use super::marks::{self, Alternatives, Mark};
use crate::connector::{Error, ErrorKind, Result, Role};
use crate::pipeline::ConnectorSpec;

/// Everything that one instance may reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Grants {
    pub(super) network: BTreeSet<Endpoint>,
    /// By absolute, normalised path.
    pub(super) paths: BTreeMap<PathBuf, PathGrant>,
    /// Names of environment variables.
    pub(super) env: BTreeSet<String>,
}

/// A file or folder that may be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PathGrant {
    pub(super) writable: bool,
    /// Where it was granted, such as `config.path`.
    pub(super) origin: String,
}

/// The grants of a connector, and the configuration as the connector gets it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Resolved {
    pub(super) grants: Grants,
    /// With every marked path made absolute.
    pub(super) config: Value,
    /// For people, in the order in which they were granted.
    pub(super) effective: Vec<EffectiveGrant>,
}

/// Works the grants out.
pub(super) fn resolve(role: Role, schema: &Value, spec: &ConnectorSpec) -> Result<Resolved> {
    let mut resolved = Resolved {
        grants: Grants::default(),
        config: spec.config.clone(),
        effective: Vec::new(),
    };
    for marked in marks::find(schema, &spec.config, Alternatives::Satisfied) {
        let Some(text) = marked.value.as_str() else {
            continue;
        };
        let origin = format!("config{}", property_path(&marked.pointer));
        match marked.mark {
            Mark::Secret => {}
            Mark::Network { default_port } => resolved.add_network(role, text, default_port, &origin)?,
            Mark::Read | Mark::Write => {
                let path = absolute(&spec.base, text, &origin)?;
                if let Some(value) = resolved.config.pointer_mut(&marked.pointer) {
                    *value = Value::String(path.clone());
                }
                resolved.add_path(path, marked.mark == Mark::Write, &origin);
            }
        }
    }
    for text in &spec.grant.network {
        resolved.add_network(role, text, None, "grant.network")?;
    }
    for (paths, writable, origin) in [
        (&spec.grant.read, false, "grant.read"),
        (&spec.grant.write, true, "grant.write"),
    ] {
        for text in paths {
            resolved.add_path(absolute(&spec.base, text, origin)?, writable, origin);
        }
    }
    for name in &spec.grant.env {
        resolved.grants.env.insert(name.clone());
        resolved.effect("env", name.clone(), "grant.env");
    }
    Ok(resolved)
}

impl Resolved {
    fn add_network(&mut self, role: Role, text: &str, default_port: Option<u16>, origin: &str) -> Result<()> {
        let endpoints = address::endpoints(text, default_port).map_err(|mistake| {
            Error::new(
                ErrorKind::Config,
                format!(
                    "`{origin}` of the {role} does not say what it connects to: {mistake}. Write a URL, host:port, \
                     or host=… port=…"
                ),
            )
        })?;
        for endpoint in endpoints {
            self.effect("network", endpoint.to_string(), origin);
            self.grants.network.insert(endpoint);
        }
        Ok(())
    }

    fn add_path(&mut self, path: String, writable: bool, origin: &str) {
        self.effect(if writable { "write" } else { "read" }, path.clone(), origin);
        let grant = self.grants.paths.entry(path.into()).or_insert(PathGrant {
            writable,
            origin: origin.to_owned(),
        });
        grant.writable |= writable;
    }

    fn effect(&mut self, kind: &'static str, target: String, origin: &str) {
        let grant = EffectiveGrant {
            kind,
            target,
            origin: origin.to_owned(),
        };
        if !self.effective.contains(&grant) {
            self.effective.push(grant);
        }
    }
}

/// `/target/paths/0` as people write it: `.target.paths[0]`.
fn property_path(pointer: &str) -> String {
    let mut path = String::new();
    for step in pointer.split('/').skip(1) {
        match step.parse::<usize>() {
            Ok(index) => path.push_str(&format!("[{index}]")),
            Err(_) => path.push_str(&format!(".{}", step.replace("~1", "/").replace("~0", "~"))),
        }
    }
    path
}

/// The absolute form of a path that is relative to `base`, with `.` and `..` worked out in the text alone.
fn absolute(base: &Path, text: &str, origin: &str) -> Result<String> {
    let mistake = |message: &str| Error::new(ErrorKind::Config, format!("`{origin}`: {message}"));
    if text.is_empty() || text.contains('\0') {
        return Err(mistake("an empty path, or one with a NUL, names nothing"));
    }
    let mut path = PathBuf::new();
    for component in base.join(text).components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                path.pop();
            }
            component => path.push(component),
        }
    }
    if !path.is_absolute() {
        return Err(mistake("the folder that it is relative to is not absolute"));
    }
    path.into_os_string()
        .into_string()
        .map_err(|_| mistake("the path is not valid UTF-8, which connectors need"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::{GrantSpec, LimitSpec};
    use serde_json::json;

    fn spec(config: Value) -> ConnectorSpec {
        ConnectorSpec {
            connector: "x".into(),
            config,
            base: "/pipelines/orders".into(),
            grant: GrantSpec::default(),
            limits: LimitSpec::default(),
        }
    }

    fn schema() -> Value {
        json!({"properties": {
            "url": {"x-setu-grant": "network", "x-setu-default-port": 5432},
            "in": {"x-setu-grant": "read"},
            "out": {"x-setu-grant": "write"},
            "files": {"items": {"x-setu-grant": "read"}},
            "note": {}}})
    }

    fn shown(spec: &ConnectorSpec) -> Vec<String> {
        let resolved = resolve(Role::Source, &schema(), spec).unwrap();
        let show = |g: &EffectiveGrant| format!("{} {} ({})", g.kind, g.target, g.origin);
        resolved.effective.iter().map(show).collect()
    }

    #[test]
    fn what_the_author_wrote_is_granted_and_nothing_else() {
        for (config, expected) in [
            (json!({}), vec![]),
            (json!({"note": "/etc/passwd", "unknown": "h:1"}), vec![]),
            (
                json!({"url": "postgres://u:p@db/x"}),
                vec!["network db:5432 (config.url)"],
            ),
            (
                json!({"in": "data.csv"}),
                vec!["read /pipelines/orders/data.csv (config.in)"],
            ),
            (json!({"in": "../x/./y"}), vec!["read /pipelines/x/y (config.in)"]),
            (json!({"in": "/../../etc"}), vec!["read /etc (config.in)"]),
            (json!({"out": "/tmp/out/"}), vec!["write /tmp/out (config.out)"]),
            (
                json!({"files": ["a", "/b"]}),
                vec![
                    "read /pipelines/orders/a (config.files[0])",
                    "read /b (config.files[1])",
                ],
            ),
        ] {
            assert_eq!(shown(&spec(config.clone())), expected, "{config}");
        }
    }

    #[test]
    fn a_path_reaches_the_connector_in_its_absolute_form() {
        let spec = spec(json!({"in": "data.csv", "note": "data.csv", "files": ["a"]}));
        let resolved = resolve(Role::Source, &schema(), &spec).unwrap();
        assert_eq!(
            resolved.config,
            json!({"in": "/pipelines/orders/data.csv", "note": "data.csv", "files": ["/pipelines/orders/a"]})
        );
    }

    #[test]
    fn a_pipeline_adds_grants_of_its_own() {
        let mut spec = spec(json!({}));
        spec.grant = GrantSpec {
            network: vec!["db.internal:5432".into()],
            read: vec!["extra".into()],
            write: vec!["extra".into()],
            env: vec!["TZ".into()],
        };
        assert_eq!(
            shown(&spec),
            [
                "network db.internal:5432 (grant.network)",
                "read /pipelines/orders/extra (grant.read)",
                "write /pipelines/orders/extra (grant.write)",
                "env TZ (grant.env)",
            ]
        );
        let grants = resolve(Role::Source, &schema(), &spec).unwrap().grants;
        assert!(grants.paths[Path::new("/pipelines/orders/extra")].writable);
    }

    #[test]
    fn a_mistake_names_the_property_and_not_the_value() {
        let error = resolve(Role::Source, &schema(), &spec(json!({"url": "h:geheim"}))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(
            error.message().contains("`config.url`") && !error.message().contains("geheim"),
            "{error}"
        );
    }
}

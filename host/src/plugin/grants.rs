//! What a connector may reach: the grants that its configuration implies and those that the pipeline adds.
//!
//! A function of schema, pipeline and base folder; of the file system it asks where granted paths lead, and nothing is
//! opened or created. `files` and `network` enforce what is decided here, `setu plan` prints it, a policy may forbid
//! it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use serde_json::Value;

use super::EffectiveGrant;
use super::marks::{self, Alternatives, Mark};
use crate::address::{self, NetworkGrant};
use crate::connector::{Error, ErrorKind, Result, Role};
use crate::pipeline::ConnectorSpec;
use crate::place::Place;
use crate::policy::{Access, Wanted};

/// Everything that one instance may reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Grants {
    pub(super) network: BTreeSet<NetworkGrant>,
    /// By absolute, normalised path.
    pub(super) paths: BTreeMap<PathBuf, PathGrant>,
    /// Names of environment variables.
    pub(super) env: BTreeSet<String>,
}

/// A file or folder that may be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PathGrant {
    pub(super) place: Place,
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
    /// Each with its place, in the order in which they were granted.
    pub(super) wanted: Vec<Wanted>,
}

/// Works the grants out.
pub(super) fn resolve(role: Role, schema: &Value, spec: &ConnectorSpec) -> Result<Resolved> {
    let mut resolved = Resolved {
        grants: Grants::default(),
        config: spec.config.clone(),
        wanted: Vec::new(),
    };
    for marked in marks::find(schema, &spec.config, Alternatives::Satisfied) {
        let Some(text) = marked.value.as_str() else {
            continue;
        };
        let origin = Origin::new(format!("/config{}", marked.pointer));
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
    for (index, text) in spec.grant.network.iter().enumerate() {
        let origin = Origin::listed("network", index);
        let grants = NetworkGrant::parse_all(text).map_err(|mistake| no_endpoint(role, &origin, &mistake))?;
        resolved.add_all(grants, &origin);
    }
    for (paths, key, writable) in [
        (&spec.grant.read, "read", false),
        (&spec.grant.write, "write", true),
    ] {
        for (index, text) in paths.iter().enumerate() {
            let origin = Origin::listed(key, index);
            resolved.add_path(absolute(&spec.base, text, &origin)?, writable, &origin);
        }
    }
    for (index, name) in spec.grant.env.iter().enumerate() {
        resolved.grants.env.insert(name.clone());
        resolved.want(Access::Env(name.clone()), &Origin::listed("env", index));
    }
    Ok(resolved)
}

/// Where something is granted.
struct Origin {
    /// Within the side: `/config/url`, `/grant/read/0`.
    pointer: String,
    /// For people: `config.url`, `grant.read`.
    shown: String,
}

impl Origin {
    fn new(pointer: String) -> Self {
        let shown = property_path(&pointer);
        let shown = shown.trim_start_matches('.').to_owned();
        Origin { pointer, shown }
    }

    /// An entry of one of the lists under `grant:`.
    fn listed(key: &str, index: usize) -> Self {
        Origin {
            pointer: format!("/grant/{key}/{index}"),
            shown: format!("grant.{key}"),
        }
    }
}

fn no_endpoint(role: Role, origin: &Origin, mistake: &str) -> Error {
    let message = format!(
        "`{}` of the {role} does not say what it connects to: {mistake}. Write a URL, host:port, or host=… port=…; \
         under `grant:` also *.name:port or address/bits:port",
        origin.shown
    );
    Error::new(ErrorKind::Config, message)
}

impl Resolved {
    fn add_network(
        &mut self,
        role: Role,
        text: &str,
        default_port: Option<u16>,
        origin: &Origin,
    ) -> Result<()> {
        let endpoints = address::endpoints(text, default_port);
        let endpoints = endpoints.map_err(|mistake| no_endpoint(role, origin, &mistake))?;
        self.add_all(endpoints.into_iter().map(NetworkGrant::from), origin);
        Ok(())
    }

    fn add_all(&mut self, grants: impl IntoIterator<Item = NetworkGrant>, origin: &Origin) {
        for grant in grants {
            self.want(Access::Network(grant.clone()), origin);
            self.grants.network.insert(grant);
        }
    }

    fn add_path(&mut self, path: String, writable: bool, origin: &Origin) {
        let path = PathBuf::from(path);
        let known = self.grants.paths.get(&path).map(|grant| grant.place.clone());
        let place = known.unwrap_or_else(|| Place::of(path.clone()));
        let access = if writable { Access::Write } else { Access::Read };
        self.want(access(place.clone()), origin);
        let grant = self.grants.paths.entry(path).or_insert(PathGrant {
            place,
            writable,
            origin: origin.shown.clone(),
        });
        grant.writable |= writable;
    }

    fn want(&mut self, access: Access, origin: &Origin) {
        let wanted = Wanted {
            access,
            pointer: origin.pointer.clone(),
            origin: origin.shown.clone(),
        };
        let known = |known: &Wanted| known.access == wanted.access && known.origin == wanted.origin;
        if !self.wanted.iter().any(known) {
            self.wanted.push(wanted);
        }
    }

    /// Why these grants must not be, if one of them would let the connector write to a folder that is the host's own.
    pub(super) fn writes_to(&self, own: &Path) -> Option<String> {
        for grant in self.grants.paths.values().filter(|grant| grant.writable) {
            // Where it leads nowhere, it is not opened.
            let real = grant.place.real();
            if real.is_some_and(|real| real.starts_with(own) || own.starts_with(real)) {
                return Some(format!(
                    "`{}` would let the connector write to compiled code, which lies in {}: choose another folder, or \
                     have SETU_CACHE_DIR name another one",
                    grant.origin,
                    own.display()
                ));
            }
        }
        None
    }

    /// For people.
    pub(super) fn effective(&self) -> Vec<EffectiveGrant> {
        let grants = self.wanted.iter().map(|wanted| EffectiveGrant {
            kind: wanted.access.kind(),
            target: wanted.access.to_string(),
            origin: wanted.origin.clone(),
        });
        grants.collect()
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
fn absolute(base: &Path, text: &str, origin: &Origin) -> Result<String> {
    let mistake = |message: &str| Error::new(ErrorKind::Config, format!("`{}`: {message}", origin.shown));
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
        resolved.effective().iter().map(show).collect()
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
                json!({"url": "DB.Internal.:5432"}),
                vec!["network db.internal:5432 (config.url)"],
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
            network: vec![
                "db.internal:5432".into(),
                "*.Internal:1".into(),
                "10.0.0.0/8:2".into(),
            ],
            read: vec!["extra".into()],
            write: vec!["extra".into()],
            env: vec!["TZ".into()],
        };
        assert_eq!(
            shown(&spec),
            [
                "network db.internal:5432 (grant.network)",
                "network *.internal:1 (grant.network)",
                "network 10.0.0.0/8:2 (grant.network)",
                "read /pipelines/orders/extra (grant.read)",
                "write /pipelines/orders/extra (grant.write)",
                "env TZ (grant.env)",
            ]
        );
        let grants = resolve(Role::Source, &schema(), &spec).unwrap().grants;
        assert!(grants.paths[Path::new("/pipelines/orders/extra")].writable);
    }

    #[test]
    fn nobody_writes_to_the_folder_of_compiled_code() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let own = root.join("cache");
        std::fs::create_dir_all(own.join("deep")).unwrap();
        std::fs::create_dir(root.join("data")).unwrap();
        std::os::unix::fs::symlink("cache", root.join("link")).unwrap();
        for (path, refused) in [
            ("cache", true),
            ("cache/deep", true),
            ("cache/new", true),
            ("link", true),
            ("", true),
            ("data", false),
            ("cachet", false),
        ] {
            let mut spec = spec(json!({}));
            spec.grant.write = vec![root.join(path).display().to_string()];
            let resolved = resolve(Role::Source, &schema(), &spec).unwrap();
            assert_eq!(resolved.writes_to(&own).is_some(), refused, "{path}");
            spec.grant.read = std::mem::take(&mut spec.grant.write);
            let resolved = resolve(Role::Source, &schema(), &spec).unwrap();
            assert_eq!(resolved.writes_to(&own), None, "{path}");
        }
    }

    /// A configuration often comes from elsewhere than the pipeline's author; only `grant:` names many hosts at once.
    #[test]
    fn a_configuration_grants_single_hosts_only() {
        for url in ["*.internal:1", "10.0.0.0/8:1", "postgres://*.internal/x"] {
            assert!(
                resolve(Role::Source, &schema(), &spec(json!({"url": url}))).is_err(),
                "{url}"
            );
        }
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

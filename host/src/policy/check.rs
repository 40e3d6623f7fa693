//! Whether what a pipeline asks for lies within a policy.

use std::fmt;
use std::path::PathBuf;

use super::{Ceiling, Excess, Identity, Policy};
use crate::address::NetworkGrant;
use crate::connector::Role;
use crate::pipeline::LimitSpec;
use crate::place::Place;

/// One thing that a connector is to reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Network(NetworkGrant),
    Read(Place),
    Write(Place),
    Env(String),
}

/// One thing that a connector is to reach, and where the pipeline says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) access: Access,
    /// Within the side: `/config/url`.
    pub(crate) pointer: String,
    /// For people: `config.url`.
    pub(crate) origin: String,
}

impl Access {
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Access::Network(_) => "network",
            Access::Read(_) => "read",
            Access::Write(_) => "write",
            Access::Env(_) => "env",
        }
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Access::Network(grant) => grant.fmt(f),
            Access::Read(place) | Access::Write(place) => place.fmt(f),
            Access::Env(name) => name.fmt(f),
        }
    }
}

impl Policy {
    /// Everything that a pipeline asks for beyond this policy; in audit mode it is told, and nothing is returned.
    pub(crate) fn excesses(
        &self,
        connector: &Identity<'_>,
        role: Role,
        wanted: &[Wanted],
        limits: &LimitSpec,
    ) -> Vec<Excess> {
        let (ceiling, entry) = self.ceiling(connector);
        let (name, policy) = (connector.name, &self.name);
        let reached = wanted
            .iter()
            .filter(|wanted| !ceiling.allows(&wanted.access))
            .map(|wanted| {
                let (kind, access) = (wanted.access.kind(), &wanted.access);
                let message = format!(
                    "`{role}.{}` asks for {kind} {access}, and the policy {policy} allows connector {name} {}: stay \
                     within that, or have `{access}` added to `{kind}` of {entry}",
                    wanted.origin,
                    ceiling.allowed(kind)
                );
                (wanted.pointer.clone(), message)
            });
        let used = limits
            .iter()
            .filter_map(|(limit, wanted)| Some((limit.name(), wanted, ceiling.limits.get(limit)?)))
            .filter(|(_, wanted, most)| wanted > most)
            .map(|(key, wanted, most)| {
                let message = format!(
                    "`{role}.limits.{key}` is {wanted}, and the policy {policy} allows connector {name} at most \
                     {most}: lower it, or have `limits.{key}` of {entry} raised"
                );
                (format!("/limits/{key}"), message)
            });
        let all = reached.chain(used);
        all.filter_map(|(pointer, message)| {
            let message = self.denied(message)?;
            Some(Excess { pointer, message })
        })
        .collect()
    }

    /// What the policy says of a connector, for people, one line for each thing that it caps.
    pub(crate) fn caps(&self, connector: &Identity<'_>) -> Vec<String> {
        let (ceiling, _) = self.ceiling(connector);
        let mut caps: Vec<String> = ["network", "read", "write", "env"]
            .into_iter()
            .filter(|kind| ceiling.caps(kind))
            .map(|kind| format!("{kind}: {}", ceiling.allowed(kind)))
            .collect();
        let limits = ceiling.limits.iter();
        caps.extend(limits.map(|(limit, most)| format!("{}: at most {most}", limit.name())));
        if self.tls {
            caps.push("tls: required".to_owned());
        }
        caps
    }
}

impl Ceiling {
    fn allows(&self, access: &Access) -> bool {
        match access {
            Access::Network(grant) => self
                .network
                .as_ref()
                .is_none_or(|network| network.iter().any(|ceiling| ceiling.includes(grant))),
            // What may be written may be read.
            Access::Read(place) => {
                !self.caps("read") || holds(self.read.iter().chain(&self.write).flatten(), place)
            }
            Access::Write(place) => !self.caps("write") || holds(self.write.iter().flatten(), place),
            Access::Env(name) => self.env.as_ref().is_none_or(|names| names.contains(name)),
        }
    }

    /// Whether there is a ceiling. One on reading or writing is one on both, or a write grant would be a way to read.
    fn caps(&self, kind: &str) -> bool {
        match kind {
            "network" => self.network.is_some(),
            "env" => self.env.is_some(),
            _ => self.read.is_some() || self.write.is_some(),
        }
    }

    /// `only a, b`, or `nothing`.
    fn allowed(&self, kind: &str) -> String {
        let paths = |lists: &[&Option<Vec<PathBuf>>]| -> Vec<String> {
            let paths = lists.iter().filter_map(|list| list.as_ref()).flatten();
            paths.map(|path| path.display().to_string()).collect()
        };
        let allowed = match kind {
            "network" => {
                let network = self.network.iter().flatten();
                network.map(NetworkGrant::to_string).collect()
            }
            "read" => paths(&[&self.read, &self.write]),
            "write" => paths(&[&self.write]),
            _ => self.env.iter().flatten().cloned().collect(),
        };
        match allowed.is_empty() {
            true => "nothing".to_owned(),
            false => format!("only {}", allowed.join(", ")),
        }
    }
}

/// Whether a place lies in one of the folders, or is one of these paths, wherever links lead.
fn holds<'a>(mut folders: impl Iterator<Item = &'a PathBuf>, place: &Place) -> bool {
    folders.any(|folder| place.is_within(folder))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::Limit;
    use std::path::Path;

    fn policy(text: &str) -> Policy {
        Policy::parse("policy.yaml", Path::new("/etc/setu"), text).unwrap_or_else(|error| panic!("{error}"))
    }

    fn postgres() -> Identity<'static> {
        Identity {
            name: "postgres",
            digest: "sha256:aa",
            bundled: true,
        }
    }

    fn wanted(access: Access) -> Wanted {
        Wanted {
            access,
            pointer: "/config/x".into(),
            origin: "config.x".into(),
        }
    }

    fn network(text: &str) -> Access {
        Access::Network(NetworkGrant::parse_all(text).unwrap().remove(0))
    }

    fn allows(policy: &Policy, access: Access) -> bool {
        let excesses = policy.excesses(
            &postgres(),
            Role::Source,
            &[wanted(access)],
            &LimitSpec::default(),
        );
        excesses.is_empty()
    }

    #[test]
    fn what_no_key_names_is_not_capped() {
        let policy = policy("default: {}\n");
        for access in [
            network("h:1"),
            Access::Read(Place::of("/etc")),
            Access::Write(Place::of("/etc")),
            Access::Env("HOME".into()),
        ] {
            assert!(allows(&policy, access.clone()), "{access}");
        }
        assert_eq!(policy.caps(&postgres()), [] as [String; 0]);
    }

    #[test]
    fn each_kind_of_grant_has_its_ceiling() {
        let policy = policy(
            "default:\n  network: ['*.internal:5432', '10.0.0.0/8:*']\n  read: [/data]\n  write: [/out]\n  env: [TZ]\n",
        );
        for (access, allowed) in [
            (network("db.internal:5432"), true),
            (network("db.internal:5433"), false),
            (network("0x0a.1:7"), true),
            (network("evil.example:5432"), false),
            (network("169.254.169.254:5432"), false),
            (Access::Read(Place::of("/data")), true),
            (Access::Read(Place::of("/data/x")), true),
            (Access::Read(Place::of("/database")), false),
            (Access::Read(Place::of("/")), false),
            (Access::Read(Place::of("/out/x")), true),
            (Access::Write(Place::of("/out/x")), true),
            (Access::Write(Place::of("/data/x")), false),
            (Access::Env("TZ".into()), true),
            (Access::Env("tz".into()), false),
        ] {
            assert_eq!(allows(&policy, access.clone()), allowed, "{access}");
        }
        assert_eq!(
            policy.caps(&postgres()),
            [
                "network: only *.internal:5432, 10.0.0.0/8:*",
                "read: only /data, /out",
                "write: only /out",
                "env: only TZ",
            ]
        );
    }

    #[test]
    fn a_ceiling_on_reading_is_one_on_writing_and_the_other_way_round() {
        let read = policy("default: { read: [/data] }\n");
        assert!(!allows(&read, Access::Write(Place::of("/data"))));
        assert!(!allows(&read, Access::Write(Place::of("/etc"))));
        let write = policy("default: { write: [/out] }\n");
        assert!(allows(&write, Access::Read(Place::of("/out"))));
        assert!(!allows(&write, Access::Read(Place::of("/etc"))));
    }

    #[test]
    fn a_link_is_the_place_that_it_leads_to() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        std::fs::create_dir_all(root.join("data/inner")).unwrap();
        std::fs::create_dir_all(root.join("secret")).unwrap();
        let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, root.join(name)).unwrap();
        link("../secret", "data/out");
        link("inner", "data/within");
        link("../none", "data/dangling");
        link("data", "also");
        let lost = policy(&format!(
            "default: {{ write: [{}] }}\n",
            root.join("data/dangling").display()
        ));
        assert!(
            !allows(&lost, Access::Write(Place::of(root.join("secret")))),
            "a ceiling that leads nowhere allows nothing"
        );
        let policy = policy(&format!(
            "default: {{ write: [{}] }}\n",
            root.join("data").display()
        ));
        for (path, allowed) in [
            ("data/new/deep", true),
            ("data/within", true),
            ("data/within/new", true),
            ("also/inner", true),
            ("data/out", false),
            ("data/out/new", false),
            ("data/dangling", false),
            ("data/dangling/x", false),
            ("secret", false),
        ] {
            assert_eq!(
                allows(&policy, Access::Write(Place::of(root.join(path)))),
                allowed,
                "{path}"
            );
        }
    }

    #[test]
    fn every_excess_is_told_with_its_place_and_the_way_out() {
        let policy = policy("default: { network: [], limits: { memoryMib: 64 } }\n");
        let limits = [(Limit::MemoryMib, 100), (Limit::CallTimeoutSeconds, 9_999)];
        let limits: LimitSpec = limits.into_iter().collect();
        let wanted = [wanted(network("db:1")), wanted(Access::Env("TZ".into()))];
        let excesses = policy.excesses(&postgres(), Role::Destination, &wanted, &limits);
        let told: Vec<_> = excesses
            .iter()
            .map(|e| format!("{}: {}", e.pointer, e.message))
            .collect();
        assert_eq!(
            told,
            [
                "/config/x: `destination.config.x` asks for network db:1, and the policy policy.yaml allows connector \
                 postgres nothing: stay within that, or have `db:1` added to `network` of `default`",
                "/limits/memoryMib: `destination.limits.memoryMib` is 100, and the policy policy.yaml allows \
                 connector postgres at most 64: lower it, or have `limits.memoryMib` of `default` raised",
            ]
        );
    }

    #[test]
    fn audit_denies_nothing() {
        let policy = policy("mode: audit\ntls: required\nplugins: { allow: [] }\ndefault: { network: [] }\n");
        assert!(allows(&policy, network("db:1")));
        assert_eq!(policy.forbids("sha256:aa", true), None);
        assert!(matches!(policy.tls(), super::super::Tls::Audited { .. }));
    }

    #[test]
    fn a_name_counts_only_for_code_that_somebody_trusted_has_looked_at() {
        let (own, other) = ("a".repeat(64), "b".repeat(64));
        let text = format!(
            "plugins: {{ allow: [bundled, 'sha256:{own}'] }}\n\
             default: {{ network: [] }}\n\
             connectors:\n- {{ digest: 'sha256:{other}', network: ['other:1'] }}\n\
             - {{ connector: postgres, network: ['db:1'] }}\n\
             - {{ connector: mine, network: ['mine:1'] }}\n"
        );
        let policy = policy(&text);
        for (name, digest, bundled, expected) in [
            ("postgres", "sha256:aa", true, "only db:1"),
            ("postgres", "sha256:aa", false, "nothing"),
            ("postgres", &*format!("sha256:{own}"), false, "only db:1"),
            ("mine", &format!("sha256:{own}"), false, "only mine:1"),
            ("postgres", &format!("sha256:{other}"), false, "only other:1"),
        ] {
            let identity = Identity {
                name,
                digest,
                bundled,
            };
            assert_eq!(
                policy.ceiling(&identity).0.allowed("network"),
                expected,
                "{identity:?}"
            );
        }
        assert_eq!(policy.forbids("sha256:aa", true), None);
        assert_eq!(policy.forbids(&format!("sha256:{own}"), false), None);
        let refused = policy.forbids("sha256:cc", false).expect("it is not allowed");
        assert!(
            refused.contains("`sha256:cc`") && refused.contains("plugins.allow"),
            "{refused}"
        );
    }
}

//! The policy file: from YAML to a [`Policy`], with every mistake reported at once.
//!
//! There are no variables in it: whoever runs a pipeline sets them, and a policy binds exactly these people.

use std::path::{Component, Path, PathBuf};
use std::sync::Mutex;

use super::{Allowed, Ceiling, Entry, Policy, Variables};
use crate::address::NetworkGrant;
use crate::pipeline::Mistakes;
use crate::pipeline::decode::{Decoder, Fields};
use crate::pipeline::is_name;
use crate::pipeline::yaml::{self, Node, Place, Value};

const GRANTS: [&str; 5] = ["network", "read", "write", "env", "limits"];

impl Policy {
    /// Reads a policy file. Fails with an I/O error only where the file cannot be read at all.
    pub fn read(path: &Path) -> std::io::Result<Result<Policy, Mistakes>> {
        let text = std::fs::read_to_string(path)?;
        let absolute = std::path::absolute(path)?;
        let base = absolute.parent().unwrap_or(&absolute);
        Ok(Policy::parse(&path.display().to_string(), base, &text))
    }

    /// Reads a policy's text. `name` is for messages; relative paths are relative to `base`, which is absolute.
    pub fn parse(name: &str, base: &Path, text: &str) -> Result<Policy, Mistakes> {
        let (root, mistakes) = yaml::parse_literally(text);
        let broken = !mistakes.is_empty();
        let mut reader = Reader {
            decoder: Decoder { mistakes },
            base,
        };
        let policy = match root.filter(|root| !matches!(root.value, Value::Null)) {
            Some(root) => reader.policy(name, &root),
            None if broken => None,
            None => {
                let message = "the file is empty, and a policy that says nothing would deny nothing; for that, leave \
                               `--policy` and SETU_POLICY out";
                reader.decoder.mistake(Place::START, message);
                None
            }
        };
        let mut list = reader.decoder.mistakes;
        match policy {
            Some(policy) if list.is_empty() => Ok(policy),
            _ => {
                list.sort_by_key(|mistake| mistake.place);
                Err(Mistakes {
                    file: name.to_owned(),
                    list,
                })
            }
        }
    }
}

struct Reader<'a> {
    decoder: Decoder,
    base: &'a Path,
}

impl Reader<'_> {
    fn policy(&mut self, name: &str, root: &Node) -> Option<Policy> {
        let keys = [
            "mode",
            "plugins",
            "tls",
            "staging",
            "variables",
            "default",
            "connectors",
        ];
        let fields = self.decoder.fields(root, "a policy", &keys)?;
        for key in keys {
            // Were it taken for a missing one, a slip of the hand would open everything.
            if fields.entry(key).is_some() && fields.get(key).is_none() {
                let message = format!("`{key}` is empty: fill it, or leave the key out");
                self.decoder.mistake(fields.place, message);
            }
        }
        let staging = fields.get("staging").and_then(|node| {
            let words = [("environment", true), ("any", false)];
            self.decoder.word(node, "`staging`", &words)
        });
        let audit = fields.get("mode").and_then(|node| {
            let words = [("enforce", false), ("audit", true)];
            self.decoder.word(node, "mode", &words)
        });
        let tls = fields.get("tls").and_then(|node| {
            self.decoder
                .word(node, "`tls`", &[("required", true), ("optional", false)])
        });
        let allow = fields.get("plugins").and_then(|node| self.plugins(node));
        let variables = fields.get("variables").map(|node| self.variables(node));
        let default = match fields.get("default") {
            Some(node) => {
                let fields = self.decoder.fields(node, "`default`", &GRANTS)?;
                self.ceiling(&fields, &Ceiling::default())
            }
            None => Ceiling::default(),
        };
        let entries = fields.get("connectors");
        let entries = entries.and_then(|node| self.decoder.list(node, "`connectors`"));
        let entries = entries.unwrap_or_default().iter();
        let entries = entries.filter_map(|node| self.entry(node, &default)).collect();
        Some(Policy {
            name: name.to_owned(),
            audit: audit.unwrap_or_default(),
            allow,
            tls: tls.unwrap_or_default(),
            staging: staging.unwrap_or_default(),
            variables,
            default,
            entries,
            told: Mutex::default(),
        })
    }

    fn plugins(&mut self, node: &Node) -> Option<Allowed> {
        let fields = self.decoder.fields(node, "`plugins`", &["allow"])?;
        let node = self.decoder.required(&fields, "allow")?;
        let mut allowed = Allowed::default();
        for (place, text) in self.texts(node, "`plugins.allow`") {
            match text.as_str() {
                "bundled" => allowed.bundled = true,
                _ => {
                    let digest = self.digest(place, &text);
                    allowed.digests.extend(digest);
                }
            }
        }
        Some(allowed)
    }

    /// `NAME`, or `PREFIX*`.
    fn variables(&mut self, node: &Node) -> Vec<Variables> {
        let mut variables = Vec::new();
        for (place, text) in self.texts(node, "`variables`") {
            let (name, all) = match text.strip_suffix('*') {
                Some(name) => (name, true),
                None => (text.as_str(), false),
            };
            match (is_name(name), all) {
                (true, false) => variables.push(Variables::One(name.to_owned())),
                (true, true) => variables.push(Variables::Beginning(name.to_owned())),
                (false, _) => {
                    let message = format!(
                        "`{text}` names no variable: write a name, or the beginning of names and `*`"
                    );
                    self.decoder.mistake(place, message);
                }
            }
        }
        variables
    }

    fn digest(&mut self, place: Place, text: &str) -> Option<String> {
        let hex = text.strip_prefix("sha256:").unwrap_or_default();
        if hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Some(text.to_ascii_lowercase());
        }
        let message = format!(
            "`{text}` is no digest: write `sha256:` and 64 hexadecimal digits, as `setu plugin inspect` shows them"
        );
        self.decoder.mistake(place, message);
        None
    }

    fn entry(&mut self, node: &Node, default: &Ceiling) -> Option<Entry> {
        let keys: Vec<&str> = ["connector", "digest"].into_iter().chain(GRANTS).collect();
        let fields = self.decoder.fields(node, "an entry of `connectors`", &keys)?;
        let connector = fields.get("connector");
        let connector = connector.and_then(|node| self.decoder.text(node, "`connector`"));
        let digest = fields.get("digest").and_then(|node| {
            let text = self.decoder.text(node, "`digest`")?;
            self.digest(node.place, text)
        });
        if fields.get("connector").is_none() && fields.get("digest").is_none() {
            let message = "an entry of `connectors` needs `connector` (a name), `digest` or both; what holds for all \
                           others stands under `default`";
            self.decoder.mistake(node.place, message);
        }
        Some(Entry {
            connector: connector.map(str::to_owned),
            digest,
            line: node.place.line,
            ceiling: self.ceiling(&fields, default),
        })
    }

    /// A key that is missing is taken from `default`. One that is there and empty (`network:`) allows nothing: were
    /// it taken for a missing one, a slip of the hand would open everything.
    fn ceiling(&mut self, fields: &Fields<'_>, default: &Ceiling) -> Ceiling {
        let mut list = |key: &str| match fields.entry(key) {
            None => None,
            Some(node) if matches!(node.value, Value::Null) => Some(Vec::new()),
            Some(node) => Some(self.texts(node, &format!("`{key}`"))),
        };
        let [network, read, write, env] = ["network", "read", "write", "env"].map(&mut list);
        let network = network.map(|texts| {
            let grants = texts
                .into_iter()
                .filter_map(|(place, text)| self.network(place, &text));
            grants.collect()
        });
        let paths = |texts: Option<Vec<(Place, String)>>| {
            let texts = texts?.into_iter();
            Some(texts.map(|(_, text)| self.absolute(&text)).collect())
        };
        let (read, write) = (paths(read), paths(write));
        let env = env.map(|texts| texts.into_iter().map(|(_, text)| text).collect());
        let limits = fields
            .get("limits")
            .map(|node| self.decoder.limits(node))
            .unwrap_or_default();
        Ceiling {
            network: network.or_else(|| default.network.clone()),
            read: read.or_else(|| default.read.clone()),
            write: write.or_else(|| default.write.clone()),
            env: env.or_else(|| default.env.clone()),
            limits: limits.or(&default.limits),
        }
    }

    fn network(&mut self, place: Place, text: &str) -> Option<NetworkGrant> {
        match NetworkGrant::parse_ceiling(text) {
            Ok(grant) => Some(grant),
            Err(mistake) => {
                let message = format!(
                    "`{text}` names no hosts and port: {mistake}. Write host:port, *.name:port or address/bits:port, \
                     and `*` for any port"
                );
                self.decoder.mistake(place, message);
                None
            }
        }
    }

    /// A list of texts with the place of each.
    fn texts(&mut self, node: &Node, what: &str) -> Vec<(Place, String)> {
        let items = self.decoder.list(node, what).unwrap_or_default();
        let texts = items.iter().filter_map(|item| {
            let text = self.decoder.text(item, &format!("an entry of {what}"))?;
            Some((item.place, text.to_owned()))
        });
        texts.collect()
    }

    /// `.` and `..` are worked out in the text, as in a grant.
    fn absolute(&self, text: &str) -> PathBuf {
        let mut path = PathBuf::new();
        for component in self.base.join(text).components() {
            match component {
                Component::CurDir => {}
                Component::ParentDir => {
                    path.pop();
                }
                component => path.push(component),
            }
        }
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::Limit;

    fn mistakes(text: &str) -> Vec<String> {
        let error = Policy::parse("p.yaml", Path::new("/etc/setu"), text).expect_err(text);
        error.to_string().lines().map(str::to_owned).collect()
    }

    #[test]
    fn every_mistake_is_told_with_its_place() {
        let text = "mode: audi\n\
                    tls: yes please\n\
                    plugins: { allow: [bundeld] }\n\
                    variables: [A, B_*, '*', a-b]\n\
                    defaults: {}\n\
                    default:\n  \
                      network: ['*:1', db]\n  \
                      limits: { memoryMb: 1 }\n\
                    connectors:\n\
                    - { network: [] }\n";
        assert_eq!(
            mistakes(text),
            [
                "p.yaml:1:7: `audi` is no mode; did you mean `audit`?",
                "p.yaml:2:6: `yes please` is no `tls`; known are `required` and `optional`",
                "p.yaml:3:20: `bundeld` is no digest: write `sha256:` and 64 hexadecimal digits, as `setu plugin \
                 inspect` shows them",
                "p.yaml:4:21: `*` names no variable: write a name, or the beginning of names and `*`",
                "p.yaml:4:26: `a-b` names no variable: write a name, or the beginning of names and `*`",
                "p.yaml:5:1: a policy has no key `defaults`; did you mean `default`?",
                "p.yaml:7:13: `*:1` names no hosts and port: a `*` must be followed by a dot and a name. Write \
                 host:port, *.name:port or address/bits:port, and `*` for any port",
                "p.yaml:7:20: `db` names no hosts and port: it names no port for db: write db:PORT. Write host:port, \
                 *.name:port or address/bits:port, and `*` for any port",
                "p.yaml:8:13: `limits` has no key `memoryMb`; did you mean `memoryMib`?",
                "p.yaml:10:3: an entry of `connectors` needs `connector` (a name), `digest` or both; what holds for \
                 all others stands under `default`",
            ]
        );
        assert_eq!(mistakes("").len(), 1);
        for section in ["default", "plugins", "connectors", "tls"] {
            assert!(
                mistakes(&format!("{section}:\n"))[0].contains("is empty"),
                "{section}"
            );
        }
        assert_eq!(mistakes("[").len(), 1);
        assert!(mistakes("default: 1\n")[0].contains("must be a map"));
    }

    #[test]
    fn a_key_that_is_missing_comes_from_the_default_and_an_empty_one_allows_nothing() {
        let text = "default: { network: ['h:1'], read: [data/../x], limits: { memoryMib: 7 } }\n\
                    connectors:\n\
                    - connector: a\n  network:\n  limits: { hostMemoryMib: 8 }\n";
        let policy = Policy::parse("p.yaml", Path::new("/etc/setu"), text).expect("a policy");
        let ceiling = &policy.entries[0].ceiling;
        assert_eq!(ceiling.network, Some(Vec::new()));
        assert_eq!(ceiling.read, Some(vec!["/etc/setu/x".into()]));
        assert_eq!(ceiling.write, None);
        assert_eq!(
            (
                ceiling.limits.get(Limit::MemoryMib),
                ceiling.limits.get(Limit::HostMemoryMib)
            ),
            (Some(7), Some(8))
        );
        assert_eq!(policy.default.network.as_ref().map(Vec::len), Some(1));
    }

    #[test]
    fn pipelines_use_the_variables_that_the_policy_names() {
        let policy = |text: &str| Policy::parse("p.yaml", Path::new("/"), text).expect("a policy");
        let some = policy("variables: [PGURL, SETU_VAR_*]\n");
        let allowed = ["PGURL", "SETU_VAR_", "SETU_VAR_X"];
        for name in allowed.into_iter().chain(["PGURL2", "pgurl", "HOME", "SETU_VAR"]) {
            let refusal = some.forbids_variable(name);
            assert_eq!(refusal.is_none(), allowed.contains(&name), "{name}: {refusal:?}");
        }
        let refusal = some.forbids_variable("HOME").expect("it is refused");
        assert!(refusal.contains("have `HOME` added to `variables`"), "{refusal}");
        assert!(policy("variables: []\n").forbids_variable("HOME").is_some());
        assert!(policy("tls: optional\n").forbids_variable("HOME").is_none());
        assert!(
            policy("mode: audit\nvariables: []\n")
                .forbids_variable("HOME")
                .is_none()
        );
    }

    #[test]
    fn no_variable_changes_a_policy() {
        let text = "default: { env: ['${HOME:-x}'] }\n";
        let policy = Policy::parse("p.yaml", Path::new("/"), text).expect("a policy");
        assert_eq!(policy.default.env, Some(vec!["${HOME:-x}".to_owned()]));
    }
}

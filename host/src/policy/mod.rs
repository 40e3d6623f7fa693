//! The platform team's ceiling on what connectors may reach and use, which no pipeline can raise.
//!
//! A policy is a file of its own (`file`), given to the command and not to the pipeline. Whether something that a
//! pipeline asks for goes beyond it is a pure function (`check`); `plugin` asks before it makes an instance, so that
//! no way of opening a connector leads past it. What is refused while a connector runs, by the grants and by
//! `tls: required`, is the work of `plugin` as well.

mod check;
mod file;

pub(crate) use check::{Access, Wanted};

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use crate::address::NetworkGrant;
use crate::pipeline::LimitSpec;

/// What a connector is, for a policy: code, and what it says of itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity<'a> {
    pub(crate) name: &'a str,
    /// `sha256:…`
    pub(crate) digest: &'a str,
    /// Its code is part of this program.
    pub(crate) bundled: bool,
}

impl<'a> Identity<'a> {
    /// Code that has not been asked for its name yet.
    pub(crate) fn unnamed(digest: &'a str, bundled: bool) -> Self {
        Identity {
            name: "",
            digest,
            bundled,
        }
    }
}

/// A policy file, read.
#[derive(Debug)]
pub struct Policy {
    /// The file, as the user wrote it.
    name: String,
    audit: bool,
    /// Which connectors may be used; none: all.
    allow: Option<Allowed>,
    tls: bool,
    /// The blob store is the environment's, whatever a pipeline says.
    staging: bool,
    /// What pipelines may take from the environment; none: everything.
    variables: Option<Vec<Variables>>,
    default: Ceiling,
    entries: Vec<Entry>,
    /// What has been told in audit mode.
    told: Mutex<BTreeSet<String>>,
}

#[derive(Debug, Default)]
struct Allowed {
    bundled: bool,
    digests: BTreeSet<String>,
}

/// Variables that pipelines may use.
#[derive(Debug, PartialEq, Eq)]
enum Variables {
    One(String),
    /// All whose names begin so.
    Beginning(String),
}

/// What some connectors may ask for at most.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ceiling {
    /// None, here and below: no ceiling.
    network: Option<Vec<NetworkGrant>>,
    read: Option<Vec<PathBuf>>,
    write: Option<Vec<PathBuf>>,
    env: Option<Vec<String>>,
    pub(crate) limits: LimitSpec,
}

/// The ceiling of the connectors that it names.
#[derive(Debug)]
struct Entry {
    connector: Option<String>,
    digest: Option<String>,
    /// Its place in the file, for messages.
    line: usize,
    ceiling: Ceiling,
}

/// Something that a pipeline asks for beyond a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excess {
    /// JSON pointer of what asks for it, within the source or destination: `/config/url`, `/limits/memoryMib`.
    pub pointer: String,
    /// What is beyond what, and the way out.
    pub message: String,
}

/// What a policy says of clear text on the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tls {
    Any,
    Required {
        /// The policy's name.
        policy: String,
    },
    /// Clear text is told and not denied.
    Audited {
        policy: String,
    },
}

impl Policy {
    /// The file, as the user wrote it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it only tells what it would deny.
    pub fn is_audit(&self) -> bool {
        self.audit
    }

    pub(crate) fn tls(&self) -> Tls {
        let policy = self.name.clone();
        match (self.tls, self.audit) {
            (false, _) => Tls::Any,
            (true, false) => Tls::Required { policy },
            (true, true) => Tls::Audited { policy },
        }
    }

    /// The ceiling of a connector, and what it is called in messages.
    pub(crate) fn ceiling(&self, connector: &Identity<'_>) -> (&Ceiling, String) {
        let entry = self.entries.iter().find(|entry| self.is_meant(entry, connector));
        match entry {
            Some(entry) => (&entry.ceiling, format!("the entry on line {}", entry.line)),
            None => (&self.default, "`default`".to_owned()),
        }
    }

    /// A name is what the connector says of itself, so it counts only for code that somebody trusted has looked at.
    fn is_meant(&self, entry: &Entry, connector: &Identity<'_>) -> bool {
        let trusted = connector.bundled
            || entry.digest.is_some()
            || self
                .allow
                .as_ref()
                .is_some_and(|allow| allow.digests.contains(connector.digest));
        entry
            .digest
            .as_deref()
            .is_none_or(|digest| digest == connector.digest)
            && entry
                .connector
                .as_deref()
                .is_none_or(|name| trusted && name == connector.name)
    }

    /// Why a connector may not be used at all; none: it may.
    pub(crate) fn forbids(&self, digest: &str, bundled: bool) -> Option<String> {
        let allow = self.allow.as_ref()?;
        if allow.digests.contains(digest) || bundled && allow.bundled {
            return None;
        }
        let (kind, line) = match bundled {
            true => ("a bundled connector", "bundled"),
            false => ("this connector", digest),
        };
        let message = format!(
            "the policy {} does not allow {kind} ({digest}): use one that `plugins.allow` names, or have `{line}` \
             added to it",
            self.name
        );
        self.denied(message)
    }

    /// Why a pipeline's blob store may not be used, where it is not the environment's own; none: it may.
    pub(crate) fn forbids_staging(&self, is_environments: bool) -> Option<String> {
        if !self.staging || is_environments {
            return None;
        }
        let message = format!(
            "the policy {} leaves the blob store to the environment, and the pipeline or job names another one: \
             take `staging` out of it, or let SETU_BLOB_* name that one here, or have `staging: environment` taken out \
             of the policy",
            self.name
        );
        self.denied(message)
    }

    /// Why a pipeline may not use a variable of the environment; none: it may.
    pub(crate) fn forbids_variable(&self, variable: &str) -> Option<String> {
        let allowed = self.variables.as_ref()?.iter().any(|allowed| match allowed {
            Variables::One(name) => variable == name,
            Variables::Beginning(start) => variable.starts_with(start.as_str()),
        });
        if allowed {
            return None;
        }
        let message = format!(
            "the policy {} does not let pipelines use the variable {variable}: do without it, or have `{variable}` \
             added to `variables`",
            self.name
        );
        self.denied(message)
    }

    /// The message, unless it is only to be told.
    fn denied(&self, message: String) -> Option<String> {
        if !self.audit {
            return Some(message);
        }
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.insert(message.clone()) {
            tracing::warn!(target: "setu::policy", "audit: would be denied: {message}");
        }
        None
    }
}

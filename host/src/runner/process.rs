//! A process, told from every other on any host.

use std::fmt;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

/// A process, as another one may meet it in a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Process {
    /// The host's name, for people.
    pub host: String,
    /// Its id on that host.
    pub id: u32,
    /// When the host booted and which of its process tables the id belongs to: two processes of which this agrees can
    /// look for each other. None where the system does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) realm: Option<String>,
    /// When the process started, in clock ticks since the host booted: ids are used again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) started: Option<u64>,
}

impl Process {
    /// This one.
    pub(super) fn current() -> Process {
        static CURRENT: OnceLock<Process> = OnceLock::new();
        CURRENT
            .get_or_init(|| {
                let id = std::process::id();
                Process {
                    host: host(),
                    id,
                    realm: realm(),
                    started: started(id),
                }
            })
            .clone()
    }

    /// One on another host.
    #[cfg(test)]
    pub(super) fn elsewhere() -> Process {
        Process {
            host: "elsewhere".into(),
            id: 1,
            realm: Some("another".into()),
            started: Some(1),
        }
    }

    /// Whether it lives; none where that cannot be told from `here`.
    pub(super) fn lives_beside(&self, here: &Process) -> Option<bool> {
        if self.realm.is_none() || self.realm != here.realm {
            return None;
        }
        let expected = self.started?;
        Some(started(self.id) == Some(expected))
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} on {}", self.id, self.host)
    }
}

fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = name.or_else(|| std::env::var("HOSTNAME").ok());
    match name.as_deref().map(str::trim) {
        Some(name) if !name.is_empty() => name.to_owned(),
        _ => "an unnamed host".to_owned(),
    }
}

fn realm() -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let table = std::fs::read_link("/proc/self/ns/pid").ok()?;
    Some(format!("{} {}", boot.trim(), table.display()))
}

/// When a living process started. None where there is none of this id, or it is a zombie.
fn started(id: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The command's name stands in parentheses and may hold anything; behind it come state (3rd field) to starttime (22nd).
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    let started = fields.nth(18)?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(started)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_alive_until_it_ends() {
        let here = Process::current();
        assert_eq!(here.lives_beside(&here), Some(true));
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("sleep");
        let other = Process {
            id: child.id(),
            started: started(child.id()),
            ..here.clone()
        };
        assert_eq!(other.lives_beside(&here), Some(true));
        child.kill().expect("it is there");
        // Also while nobody has waited for it.
        while other.lives_beside(&here) == Some(true) {
            std::thread::yield_now();
        }
        child.wait().expect("it ended");
        assert_eq!(other.lives_beside(&here), Some(false));
        assert_eq!(Process::elsewhere().lives_beside(&here), None);
    }
}

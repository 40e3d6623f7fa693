//! Parts to the blob store, and into the manifest once they are there.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use super::pack::PackedPart;
use super::{Failure, OwnManifest, QUEUED_PARTS, panicked, spawn};
use crate::connector::{Error, Result};
use crate::staging::fence::Fenced;
use crate::staging::{Manifest, Part, RunLayout};

/// Up to so many parts, every one that lands is named at once; beyond, whenever this fraction more has landed.
const NAMED_AT_ONCE: usize = 1000;

/// Two threads: one stores parts, the other names them. Storing goes on while the manifest is written, and one write
/// of it covers all that landed meanwhile.
pub(super) struct Landing {
    storer: JoinHandle<()>,
    namer: JoinHandle<OwnManifest>,
}

impl Landing {
    /// Goes on with a manifest; parts go to the sender that is returned.
    pub(super) fn start(
        objects: Fenced,
        layout: RunLayout,
        own: OwnManifest,
        failure: Arc<Failure>,
    ) -> Result<(Landing, SyncSender<PackedPart>)> {
        let (sender, packed) = sync_channel(QUEUED_PARTS);
        // Unbounded, but a part that has landed is but its name.
        let (landed, to_name) = channel();
        let manifest = own.manifest.clone();
        let namer = {
            let (objects, failure) = (objects.clone(), Arc::clone(&failure));
            spawn("setu-manifest", move || {
                name_parts(&objects, own, &to_name, &failure)
            })?
        };
        let storer = spawn("setu-upload", move || {
            if let Err(error) = store_parts(&objects, &layout, &manifest, &packed, &landed) {
                failure.set(error);
            }
        })?;
        Ok((Landing { storer, namer }, sender))
    }

    /// Waits until all parts that were sent have landed and are named.
    pub(super) fn join(self) -> Result<OwnManifest> {
        self.storer.join().map_err(|_| panicked())?;
        self.namer.join().map_err(|_| panicked())
    }
}

fn store_parts(
    objects: &Fenced,
    layout: &RunLayout,
    manifest: &Manifest,
    packed: &Receiver<PackedPart>,
    landed: &Sender<Part>,
) -> Result<(), Error> {
    for (index, part) in (manifest.parts.len()..).zip(packed) {
        let key = layout.part(&manifest.stream, index);
        objects.create(&key, &part.gzip)?;
        let part = Part {
            key: key.to_string(),
            rows: part.rows,
            bytes: part.gzip.len() as u64,
            min_cursor: part.min_cursor,
            max_cursor: part.max_cursor,
            position: part.position,
        };
        if landed.send(part).is_err() {
            break; // the manifest cannot be written, and why is known
        }
    }
    Ok(())
}

/// Names parts as they land, until no more come; returns the manifest with all of them.
fn name_parts(
    objects: &Fenced,
    mut own: OwnManifest,
    landed: &Receiver<Part>,
    failure: &Failure,
) -> OwnManifest {
    let mut named = own.manifest.parts.len();
    while let Ok(part) = landed.recv() {
        for part in std::iter::once(part).chain(landed.try_iter()) {
            own.manifest.rows_total += part.rows;
            own.manifest.parts.push(part);
        }
        if is_due(named, own.manifest.parts.len()) {
            if let Err(error) = own.put(objects) {
                failure.set(error);
                return own;
            }
            named = own.manifest.parts.len();
        }
    }
    // The writer may have been dropped rather than finished; then this is what a resumed extract finds.
    if named < own.manifest.parts.len()
        && let Err(error) = own.put(objects)
    {
        failure.set(error);
    }
    own
}

/// Whether the manifest is to be written, when it names `named` of `landed` parts. The bytes written for it per part
/// then stay bounded however many parts there are.
fn is_due(named: usize, landed: usize) -> bool {
    landed - named >= landed.div_ceil(NAMED_AT_ONCE).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_named_at_once_up_to_a_thousand_and_every_thousandth_more_beyond() {
        for (named, landed, due) in [
            (0, 0, false),
            (0, 1, true),
            (0, 3, true),
            (998, 999, true),
            (999, 1000, true),
            (1000, 1001, false),
            (1000, 1002, true),
            (5000, 5005, false),
            (5000, 5006, true),
        ] {
            assert_eq!(is_due(named, landed), due, "{named} of {landed}");
        }
    }

    #[test]
    fn the_names_written_per_part_stay_bounded() {
        let parts = 100_000;
        let (mut named, mut written) = (0, 0);
        for landed in 1..=parts {
            if is_due(named, landed) {
                named = landed;
                written += landed;
            }
        }
        assert!(written / parts <= NAMED_AT_ONCE, "{written}");
    }
}

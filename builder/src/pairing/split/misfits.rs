//! Whether split units describe the code that a module has.

use std::collections::{BTreeMap, BTreeSet};

use symseal_artifact::{ObjectFile, SplitMisfits};

use super::{SplitFiles, object};
use crate::error::BuildError;
use crate::pairing::Part;

/// Bytes of split files that are compared with a module's code at a time, where no single one is larger.
const COMPARED_AT_ONCE: u64 = 256 << 20;

/// Where the units of files contradict a module's code, by unit and file. Compilers give one id to what they make of one source with other
/// options, for other processors of a kind, and to versions of a source that differ little.
#[derive(Default)]
pub(super) struct Misfits(BTreeMap<(u64, usize), SplitMisfits>);

impl Misfits {
    /// Whether a unit is of another build.
    pub(super) fn contradicts(&self, unit: u64, file: usize) -> bool {
        self.0.get(&(unit, file)).is_some_and(|misfits| misfits.functions > 0)
    }

    /// The first function that the module's code does not have.
    pub(super) fn first(&self, unit: u64, file: usize) -> Option<(u64, u64)> {
        self.0.get(&(unit, file))?.first
    }

    /// How well a unit fits, the best one least.
    pub(super) fn rank(&self, unit: u64, file: usize) -> impl Ord + use<> {
        let misfits = self.0.get(&(unit, file));
        (misfits.is_none(), misfits.map(|misfits| (misfits.functions, misfits.unmet)))
    }

    /// Holds these files to the code of the module that `described` describes.
    pub(super) fn compare(
        &mut self,
        described: Part<'_>,
        compared: Vec<usize>,
        files: &SplitFiles<'_, '_>,
    ) -> Result<(), BuildError> {
        let compared: BTreeSet<usize> = compared.into_iter().collect();
        let compared: Vec<_> = compared.into_iter().filter_map(|at| Some((at, files.part(at)?))).collect();
        if compared.is_empty() {
            return Ok(());
        }
        let own = described.file.read(files.layout)?;
        let Some(own) = object(&own, described)? else { return Ok(()) };
        let mut weight = 0_u64;
        let batches = compared.chunk_by(|_, (_, part)| {
            weight = weight.saturating_add(part.file.weight());
            let fits = weight <= COMPARED_AT_ONCE;
            weight = if fits { weight } else { 0 };
            fits
        });
        for batch in batches {
            let read: Vec<_> = batch.iter().map(|(_, part)| part.file.read(files.layout)).collect::<Result<_, _>>()?;
            let mut objects = Vec::with_capacity(batch.len());
            for (bytes, (at, part)) in read.iter().zip(batch) {
                objects.extend(object(bytes, *part)?.map(|object| (*at, object)));
            }
            let split: Vec<&ObjectFile<'_>> = objects.iter().map(|(_, object)| object).collect();
            let found = own.split_misfits(&split).into_iter();
            self.0.extend(found.filter_map(|((unit, file), misfits)| Some(((unit, objects.get(file)?.0), misfits))));
        }
        Ok(())
    }
}

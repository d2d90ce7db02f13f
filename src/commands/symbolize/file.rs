//! `symseal symbolize --file`: addresses of a file of this machine, as addr2line takes them.

use std::path::Path;

use anyhow::{Result, bail};
use symseal_module::{Avma, Rva, Svma, UnwindMethod};
use symseal_resolver::{FrameAddress, Options, ResolvedFrame, Resolver, Symbolized};

use super::questions::{Question, in_portions};
use super::{Args, NOWHERE, print, rva_of};
use crate::exit::Answer;
use crate::frames::Lacks;
use crate::local_module;
use crate::online::Online;

pub(super) fn run(args: &Args, file: &Path, online: Option<&Online>) -> Result<Answer> {
    let bytes = local_module::read(file)?;
    let (id, image_base) = local_module::identity(file, &bytes, args.debug_id.as_ref())?;
    let options =
        Options { local_files: true, online: online.is_some(), demangle: args.demangle, ..Options::default() };
    let mut resolver = Resolver::new(options);
    if let Some(reference) = &args.bundle {
        let Some(bundle) = args.naming_bundle(reference)? else { return Ok(Answer::No) };
        resolver = bundle.join(resolver);
    }
    if !args.debug_directory.is_empty() {
        resolver = resolver.with_debug_directories(args.debug_directory.clone());
    }
    let rva = |question: &Question| rva_of(args, args.lookup(question.address), image_base);
    let resolver = Online::ask(online, resolver);
    // Standard input may have any number; those that were given are all that will be asked.
    let resolver = resolver.expecting(&id, &args.addresses.iter().map(rva).collect::<Vec<Rva>>());
    let map = local_module::alone(file, &id, image_base)?;
    if let Some(module) = map.modules().first() {
        resolver.keep_read(module, bytes);
    }
    let checked = |question: &Question| match question.debug_id.as_ref().is_some_and(|other| *other != id) {
        true => bail!("--file: expected addresses of {id} alone, found one of another module"),
        false => Ok(()),
    };
    let (mut named, mut lacks) = (false, Lacks::default());
    in_portions(args, checked, |out, questions| {
        let frames: Vec<FrameAddress> = questions.iter().map(|question| at(rva(question), image_base)).collect();
        for (question, frame) in questions.iter().zip(resolver.resolve_all(&map, &frames)) {
            let ResolvedFrame { symbol_offset, answer, .. } = frame;
            let found = Symbolized { rva: rva(question), symbol_offset, answer };
            named |= !found.frames.is_empty();
            lacks.warn(&found);
            print(out, question, &found, args)?;
        }
        Ok(())
    })?;
    Ok(named.into())
}

/// An address of the module as if it were loaded where it says.
fn at(rva: Rva, image_base: Svma) -> FrameAddress {
    let svma = rva.to_svma(image_base).unwrap_or(Svma(NOWHERE.0));
    FrameAddress { ip: Avma(svma.0), exact: true, unwind: UnwindMethod::Context }
}

//! Names of the running kernel: of a bundle that has it, else its own list.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};
use symseal_module::{Avma, DebugId, MappedModule, MissReason, ModuleMap, Proof, Quality, ResolverStep, Rva, Svma};
use symseal_process::{KernelSymbols, ProcessError, is_kernel_address, kernel_build_id, kernel_symbols};

use super::LiveAddress;
use super::frame::{missed, raw, told};
use crate::jit::with_name;
use crate::trail::{miss, skip};
use crate::{ModuleRef, ResolvedFrame, Resolver, SourceFrame, Text, Tried};

/// How the kernel is called where a module has a path.
const KERNEL: &str = "[kernel]";

/// After this time an address without a symbol is a reason to read the list again: a module may have been loaded.
const STALE: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(super) struct Kernel {
    /// Read without a lock: whoever does not wait for the list gets the one before.
    list: ArcSwapOption<(Instant, Symbols)>,
    /// Held while the list is read.
    reading: Mutex<()>,
    /// Of the modules that were asked for.
    build_ids: ArcSwap<HashMap<Option<String>, Option<DebugId>>>,
}

type Symbols = Result<Arc<KernelSymbols>, (MissReason, String)>;

impl Kernel {
    /// Whether the list was read, so that [`Self::frame`] has nothing to wait for.
    pub(super) fn is_read(&self) -> bool {
        self.known(None).is_some()
    }

    /// The frame at an address of the kernel. With `wait` the list is read where it was not, and again where it is old
    /// and does not have the address.
    pub(super) fn frame(&self, resolver: &Resolver, address: LiveAddress, wait: bool) -> ResolvedFrame {
        let found = match self.symbols(None) {
            Ok(symbols) if wait && symbols.find(address.lookup()).is_none() => self.symbols(Some(STALE)),
            symbols => symbols,
        };
        match found {
            Ok(symbols) => self.named(resolver, &symbols, address),
            Err((reason, detail)) => {
                let hidden = "where the kernel lies is not known".to_string();
                let bundle = Tried { detail: hidden, ..skip(ResolverStep::LocalBundle, reason) };
                let frame = told(told(raw(address), unasked(resolver)), bundle);
                missed(frame, ResolverStep::Kallsyms, reason, detail)
            }
        }
    }

    /// The list; read now where it was not, or is older than `stale`.
    fn symbols(&self, stale: Option<Duration>) -> Symbols {
        if let Some(known) = self.known(stale) {
            return known;
        }
        let _one_at_a_time = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        // The one before may have read it.
        if let Some(known) = self.known(stale) {
            return known;
        }
        let symbols = kernel_symbols().map(Arc::new).map_err(|error| {
            let reason = match &error {
                ProcessError::KernelSymbols { .. } => MissReason::NotPermitted,
                _ => MissReason::FileUnreadable,
            };
            (reason, error.to_string())
        });
        self.list.store(Some(Arc::new((Instant::now(), symbols.clone()))));
        symbols
    }

    /// The list as it was read last, unless that is longer ago than `stale`.
    fn known(&self, stale: Option<Duration>) -> Option<Symbols> {
        let list = self.list.load();
        let known = list.as_deref().filter(|(read, _)| stale.is_none_or(|stale| read.elapsed() < stale));
        known.map(|(_, symbols)| symbols.clone())
    }

    fn named(&self, resolver: &Resolver, symbols: &KernelSymbols, address: LiveAddress) -> ResolvedFrame {
        let Some(hit) = symbols.find(address.lookup()) else {
            return missed(raw(address), ResolverStep::Kallsyms, MissReason::NoSymbolAtAddress, String::new());
        };
        let debug_id = self.build_id(hit.module);
        let path = hit.module.map_or_else(|| KERNEL.to_string(), |module| format!("[{module}]"));
        let (lack, why) = match (hit.module, &debug_id) {
            _ if !resolver.has_bundles() => (MissReason::NoBundle, String::new()),
            (None, Some(id)) => match in_bundle(resolver, symbols.text_start(), id, address) {
                Some(frame) => return frame,
                None if resolver.image_base(id).is_some() => (MissReason::NoSymbolAtAddress, String::new()),
                None => (MissReason::NotInBundle, String::new()),
            },
            (None, None) => (MissReason::NoDebugId, String::new()),
            // A bundle has their sections where the linker left them.
            (Some(_), _) => {
                (MissReason::Unsupported, "the kernel places each section of a module by itself".to_string())
            }
        };
        let rva = Rva(address.ip.0.saturating_sub(hit.base.0));
        let name = Text::from(hit.name);
        let frame = SourceFrame { function: Some(name.clone()), symbol: Some(name), ..SourceFrame::default() };
        let module = Some(ModuleRef { path, debug_id, rva, svma: Svma(rva.0) });
        let step = ResolverStep::LocalBundle;
        let bundle = match lack {
            MissReason::NoBundle => skip(step, lack),
            _ => miss(step, lack, why, None),
        };
        let base = told(told(ResolvedFrame { module, ..raw(address) }, unasked(resolver)), bundle);
        with_name(base, (ResolverStep::Kallsyms, "/proc/kallsyms".to_string()), (frame, hit.start), true)
    }

    fn build_id(&self, module: Option<&str>) -> Option<DebugId> {
        let module = module.map(str::to_owned);
        if let Some(known) = self.build_ids.load().get(&module) {
            return known.clone();
        }
        let id = kernel_build_id(module.as_deref());
        self.build_ids.rcu(|known| {
            let mut known = HashMap::clone(known);
            known.insert(module.clone(), id.clone());
            known
        });
        id
    }
}

/// Servers are not asked of the kernel.
fn unasked(resolver: &Resolver) -> Tried {
    let step = ResolverStep::Debuginfod;
    match resolver.options().online {
        true => {
            Tried { detail: "servers are not asked of the kernel".to_string(), ..skip(step, MissReason::Unsupported) }
        }
        false => skip(step, MissReason::Offline),
    }
}

/// The name of a bundle that has this very kernel, moved to where it lies now.
fn in_bundle(resolver: &Resolver, text: Option<Avma>, id: &DebugId, address: LiveAddress) -> Option<ResolvedFrame> {
    let image_base = resolver.image_base(id)?;
    // Kernels whose first segment holds the variables of processors begin at 0, and not with their code.
    if !is_kernel_address(Avma(image_base.0)) {
        return None;
    }
    let start = text?;
    let module = MappedModule {
        path: KERNEL.to_string(),
        debug_id: Some(id.clone()),
        start,
        end: Avma(u64::MAX),
        bias: start.0.wrapping_sub(image_base.0),
        image_base,
    };
    let frame = resolver.resolve(&ModuleMap::new(vec![module]), address.ip, address.exact, address.unwind);
    (frame.quality <= Quality::Function && frame.proof != Proof::None).then_some(frame)
}

//! One process: its addresses to frames, at once or as far as they are known.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Arc, LazyLock};

use symseal_module::{Avma, MissReason, ModuleMap, ResolverStep};
use symseal_process::{ProcessError, is_kernel_address};

use super::entry::Entry;
use super::frame::{in_mapping, missed, raw};
use super::modules::Names;
use super::named::NamedAddress;
use super::shelf::Place;
use super::view::{View, ViewedModule};
use super::{LiveAddress, LiveLimits, LiveStatistics, LiveSymbolizer, Shared};
use crate::{ModuleRef, Options, ResolvedFrame, Resolver};

/// A running process whose addresses are named. See the [module documentation](super). Clones are the same one.
#[derive(Debug, Clone)]
pub struct LiveProcess {
    shared: Arc<Shared>,
    pid: u32,
    started: u64,
    /// Where what is known of it is.
    place: Arc<Place<Entry>>,
}

/// Frames as far as they are known, and the rest when it is ready.
#[derive(Debug)]
pub struct Resolving {
    /// One frame an address, as far as it is known.
    pub frames: Vec<ResolvedFrame>,
    /// Which of the frames may get better, as indices; empty where all are final.
    pub pending: Vec<usize>,
    later: Option<Receiver<Vec<ResolvedFrame>>>,
}

/// The addresses that are asked for once and for all, by the first address of their module.
#[derive(Default)]
struct Expected(BTreeMap<Avma, Arc<[Avma]>>);

impl Expected {
    fn new(addresses: &[LiveAddress], view: &View) -> Self {
        let mut modules: BTreeMap<Avma, Vec<Avma>> = BTreeMap::new();
        for lookup in addresses.iter().map(LiveAddress::lookup) {
            if let Some((module, _)) = view.locate(lookup) {
                modules.entry(module.module.module.start).or_default().push(lookup);
            }
        }
        Self(modules.into_iter().map(|(start, lookups)| (start, lookups.into())).collect())
    }

    /// Those of a module; none where others may be asked for.
    fn of(&self, module: &ViewedModule) -> Arc<[Avma]> {
        self.0.get(&module.module.module.start).cloned().unwrap_or_default()
    }
}

/// The names that one call uses. Most frames of a stack lie in the module of the one before.
#[derive(Default)]
struct InUse<'v>(Option<(&'v Arc<ViewedModule>, Arc<Names>)>);

impl<'v> InUse<'v> {
    /// The names of a module: those of the address before, where that lies in it too, or what `read` gives.
    fn names(&mut self, module: &'v Arc<ViewedModule>, read: impl FnOnce() -> Arc<Names>) -> &Names {
        self.0 = self.0.take().filter(|(last, _)| Arc::ptr_eq(last, module));
        let (_, names) = self.0.get_or_insert_with(|| (module, read()));
        names
    }

    /// The same where they may not be there yet.
    fn ready(&mut self, module: &'v Arc<ViewedModule>, found: impl FnOnce() -> Option<Arc<Names>>) -> Option<&Names> {
        let same = self.0.take().filter(|(last, _)| Arc::ptr_eq(last, module));
        self.0 = same.or_else(|| Some((module, found()?)));
        self.0.as_ref().map(|(_, names)| names.as_ref())
    }
}

impl LiveProcess {
    /// The process with this id, or with a thread of this id, with a symbolizer of its own under the default limits.
    ///
    /// # Errors
    /// Where there is none, or it cannot be looked at.
    pub fn attach(pid: u32, resolver: Resolver) -> Result<Self, ProcessError> {
        LiveSymbolizer::new(resolver, LiveLimits::default()).process(pid)
    }

    pub(super) fn new(shared: Arc<Shared>, pid: u32, started: u64) -> Self {
        let place = shared.processes.place(&(pid, started));
        Self { shared, pid, started, place }
    }

    /// The process's id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The caches of its symbolizer.
    pub fn statistics(&self) -> LiveStatistics {
        LiveSymbolizer { shared: Arc::clone(&self.shared) }.statistics()
    }

    /// Reads the process's mappings and JIT files again, as after the kernel told of a new mapping. It waits for the process.
    ///
    /// # Errors
    /// Where nothing is known of the process and nothing can be read any more.
    pub fn refresh(&self) -> Result<(), ProcessError> {
        let entry = self.entry();
        let view = entry.read()?;
        entry.read_jit(&view);
        Ok(())
    }

    /// Names addresses, one frame each, in their order. It waits for what has to be read; tables of several modules are
    /// read side by side.
    pub fn resolve(&self, addresses: &[LiveAddress]) -> Vec<ResolvedFrame> {
        self.resolve_with(addresses, false)
    }

    /// The same for who asks for these addresses and hardly for others: of a large module only what describes them is read
    /// ([`Resolver::expecting`]). It is nothing for a profiler: whoever asks for another address of such a module later, be it without waiting, may have
    /// to wait for all of it.
    pub fn resolve_once(&self, addresses: &[LiveAddress]) -> Vec<ResolvedFrame> {
        self.resolve_with(addresses, true)
    }

    fn resolve_with(&self, addresses: &[LiveAddress], once: bool) -> Vec<ResolvedFrame> {
        let entry = self.entry();
        let view = match entry.view() {
            // What was unmapped may have given its place to another module. Who waits anyway is given what is mapped now.
            Ok(view) if !entry.is_fresh() => self.view_for(addresses, &entry, entry.read().unwrap_or(view)),
            Ok(view) => self.view_for(addresses, &entry, view),
            Err(error) => return addresses.iter().map(|address| self.shared.without_view(*address, &error)).collect(),
        };
        self.remember(&entry, &view);
        let expected = if once { Expected::new(addresses, &view) } else { Expected::default() };
        self.read_beside(addresses, &view, &expected);
        let mut in_use = InUse::default();
        let frame = |address: &LiveAddress| self.frame((&entry, &view), *address, &expected, &mut in_use);
        addresses.iter().map(frame).collect()
    }

    /// Names addresses as far as that can be done at once. What is missing is then found by the symbolizer's threads:
    /// the next call has it, or [`Resolving::wait`] does.
    pub fn try_resolve(&self, addresses: &[LiveAddress]) -> Resolving {
        let entry = self.entry();
        let view = entry.view_without_reading();
        let (mut frames, mut pending) = (Vec::with_capacity(addresses.len()), Vec::new());
        let mut in_use = InUse::default();
        for (index, address) in addresses.iter().enumerate() {
            let (frame, is_final) = self.frame_now((&entry, view.as_deref()), *address, &mut in_use);
            frames.push(frame);
            if !is_final {
                pending.push(index);
            }
        }
        let later = if pending.is_empty() { None } else { self.resolve_later(addresses) };
        Resolving { frames, pending, later }
    }

    fn resolve_later(&self, addresses: &[LiveAddress]) -> Option<Receiver<Vec<ResolvedFrame>>> {
        let (sender, receiver) = channel();
        let (process, addresses) = (self.clone(), addresses.to_vec());
        let submitted = self.shared.pool.submit(move || {
            // Nobody may be waiting any more; what was read is kept all the same.
            let _ = sender.send(process.resolve(&addresses));
        });
        submitted.then_some(receiver)
    }

    fn entry(&self) -> Arc<Entry> {
        self.shared.processes.get(&self.place, |_| true, || (Entry::new(self.pid, self.started), 0))
    }

    /// Notes what the view of a process weighs.
    fn remember(&self, entry: &Arc<Entry>, view: &View) {
        if self.place.bytes() != view.bytes() || !self.place.is_filled() {
            self.shared.processes.put(&self.place, Arc::clone(entry), view.bytes());
        }
    }

    /// A view in which the addresses are known, as far as any is: mappings and JIT files are read again where one is not.
    fn view_for(&self, addresses: &[LiveAddress], entry: &Entry, view: Arc<View>) -> Arc<View> {
        let outside = |view: &View| {
            let unknown = |address: &&LiveAddress| {
                let lookup = address.lookup();
                view.locate(lookup).is_none() && !is_kernel(view, **address)
            };
            addresses.iter().filter(unknown).copied().collect::<Vec<_>>()
        };
        let unknown = outside(&view);
        if unknown.is_empty() {
            return view;
        }
        entry.read_jit(&view);
        let is_named = |address: &LiveAddress| !in_no_module(entry, &view, *address).frames.is_empty();
        if unknown.iter().all(is_named) {
            return view;
        }
        let read = entry.read().unwrap_or_else(|_| Arc::clone(&view));
        if !Arc::ptr_eq(&read, &view) {
            entry.read_jit(&read);
        }
        read
    }

    /// Has the pool read the tables that are needed, but for one, which the caller reads.
    fn read_beside(&self, addresses: &[LiveAddress], view: &View, expected: &Expected) {
        let located = addresses.iter().filter_map(|address| view.locate(address.lookup()));
        let needed: BTreeMap<usize, &Arc<ViewedModule>> = located.map(|(module, at)| (at.module, module)).collect();
        let unread = needed.into_values().filter(|module| self.shared.modules.is_unread(module)).cloned();
        for module in unread.skip(1) {
            let expected = expected.of(&module);
            let (shared, pid) = (Arc::downgrade(&self.shared), self.pid);
            // Where the pool is full, the caller reads it.
            self.shared.pool.submit(move || {
                if let Some(shared) = shared.upgrade() {
                    shared.modules.names(pid, &module, &expected);
                }
            });
        }
    }

    fn frame<'v>(
        &self,
        (entry, view): (&Entry, &'v View),
        address: LiveAddress,
        expected: &Expected,
        in_use: &mut InUse<'v>,
    ) -> ResolvedFrame {
        let lookup = address.lookup();
        if let Some((module, _)) = view.locate(lookup) {
            let names = in_use.names(module, || self.shared.modules.names(self.pid, module, &expected.of(module)));
            let frame = self.in_module(names, module, address);
            if !frame.frames.is_empty() {
                return frame;
            }
            // Runtimes write names of code in files too: node of its builtins. What was asked before does not decide whether they are known.
            entry.refresh_jit(view);
            return entry.with_jit(frame, lookup);
        }
        if is_kernel(view, address) {
            return self.shared.kernel.frame(&self.shared.base, address, true);
        }
        in_no_module(entry, view, address)
    }

    /// The frame as far as it is known, and whether that is final.
    fn frame_now<'v>(
        &self,
        (entry, view): (&Entry, Option<&'v View>),
        address: LiveAddress,
        in_use: &mut InUse<'v>,
    ) -> (ResolvedFrame, bool) {
        let lookup = address.lookup();
        let Some(view) = view else { return (raw(address), false) };
        if let Some((module, _)) = view.locate(lookup) {
            let Some(names) = in_use.ready(module, || self.shared.modules.ready(module)) else {
                return (module_offset(module, address), false);
            };
            let frame = self.in_module(names, module, address);
            if !frame.frames.is_empty() {
                return (frame, true);
            }
            return (entry.with_jit(frame, lookup), entry.has_read_jit());
        }
        if is_kernel(view, address) {
            return match self.shared.kernel.is_read() {
                true => (self.shared.kernel.frame(&self.shared.base, address, false), true),
                false => (raw(address), false),
            };
        }
        let frame = in_no_module(entry, view, address);
        let is_final = entry.has_fresh_jit() && (!frame.frames.is_empty() || entry.is_fresh());
        (frame, is_final)
    }

    /// What the chain says of an address of a module; remembered.
    fn in_module(&self, names: &Names, module: &ViewedModule, address: LiveAddress) -> ResolvedFrame {
        let Some(resolver) = &names.resolver else {
            let detail = format!("{}: reading it failed unexpectedly", module.module.module.path);
            let frame = module_offset(module, address);
            return missed(frame, ResolverStep::BinaryDebugInfo, MissReason::Malformed, detail);
        };
        let (svma, base) = (module.module.module.svma(address.ip), module.module.module.image_base);
        let key = svma.to_rva(base).map(|rva| NamedAddress { serial: names.serial, rva, exact: address.exact });
        // The same place of the module, which may lie elsewhere in this process.
        let here = |known: &ResolvedFrame| {
            let module = known.module.clone().map(|known| ModuleRef { svma, ..known });
            let (symbol_offset, answer) = (known.symbol_offset, Arc::clone(&known.answer));
            ResolvedFrame { ip: address.ip, module, unwind: address.unwind, symbol_offset, answer }
        };
        if let Some(known) = key.and_then(|key| self.shared.addresses.find_with(key, here)) {
            return known;
        }
        let map = ModuleMap::new(vec![names.module(module)]);
        let frame = resolver.resolve(&map, address.ip, address.exact, address.unwind);
        let frame = match &names.problem {
            Some((reason, detail)) if frame.frames.is_empty() => {
                missed(frame, ResolverStep::BinaryDebugInfo, *reason, detail.clone())
            }
            _ => frame,
        };
        if let Some(key) = key {
            self.shared.addresses.keep(key, &frame);
        }
        frame
    }
}

impl Shared {
    /// A frame of a process that cannot be looked at. The kernel's functions are named all the same.
    pub(super) fn without_view(&self, address: LiveAddress, error: &ProcessError) -> ResolvedFrame {
        if is_kernel_address(address.lookup()) {
            return self.kernel.frame(&self.base, address, true);
        }
        let reason = match error {
            ProcessError::NotPermitted { .. } => MissReason::NotPermitted,
            _ => MissReason::NoModule,
        };
        missed(raw(address), ResolverStep::ModuleOffset, reason, error.to_string())
    }
}

impl Resolving {
    /// Whether every frame is final.
    pub fn is_complete(&self) -> bool {
        self.pending.is_empty()
    }

    /// Takes in what has become ready. True once every frame is final.
    pub fn poll(&mut self) -> bool {
        match self.later.as_ref().map(Receiver::try_recv) {
            Some(Ok(frames)) => self.complete(frames),
            // Too many were waiting, or the symbolizer is gone: what is here is what there is.
            Some(Err(TryRecvError::Disconnected)) => self.later = None,
            Some(Err(TryRecvError::Empty)) | None => {}
        }
        self.is_complete()
    }

    /// Waits for the rest. Where it does not come, because too much was waiting, gives what is known.
    pub fn wait(mut self) -> Vec<ResolvedFrame> {
        if let Some(frames) = self.later.take().and_then(|later| later.recv().ok()) {
            self.complete(frames);
        }
        self.frames
    }

    fn complete(&mut self, frames: Vec<ResolvedFrame>) {
        self.frames = frames;
        self.pending.clear();
        self.later = None;
    }
}

fn is_kernel(view: &View, address: LiveAddress) -> bool {
    // `[vsyscall]` lies in the kernel's half and is the process's.
    is_kernel_address(address.lookup()) && view.mapping(address.lookup()).is_none()
}

/// The frame at an address that is no module's: code that the process made, or its place in a mapping. Where nothing is mapped a runtime's word names nothing.
fn in_no_module(entry: &Entry, view: &View, address: LiveAddress) -> ResolvedFrame {
    match view.mapping(address.lookup()) {
        Some(mapping) => entry.with_jit(in_mapping(address, mapping), address.lookup()),
        None => raw(address),
    }
}

/// The place in a module, before anything was read of it.
fn module_offset(module: &ViewedModule, address: LiveAddress) -> ResolvedFrame {
    let map = ModuleMap::new(vec![module.module.module.clone()]);
    // Asks nobody: it has neither bundles nor files.
    static NOTHING: LazyLock<Resolver> =
        LazyLock::new(|| Resolver::new(Options { address_cache: 0, ..Options::default() }));
    NOTHING.resolve(&map, address.ip, address.exact, address.unwind)
}

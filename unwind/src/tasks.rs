//! From a task of Rust that the stack polls to the task that waits for its end.
//!
//! A task of tokio is a structure on the heap that begins with a header; what runs it is `Harness::poll` of its future's type, which gives the future a
//! waker: the address of the header and that of the table of all such wakers. Who awaits the task's `JoinHandle` has left its own waker in the trailer of the
//! structure, and if that is of a task too, it leads to its header. (tokio, `runtime/task/core.rs`, `harness.rs`, `waker.rs`) Within one task
//! a `poll` calls the next one, and all of them are on the stack.

use core::ops::Range;

use symseal_module::Rva;

use crate::arch::Target;
use crate::continuation::{Functions, follow};
use crate::frame::Frame;
use crate::memory::Memory;
use crate::step::Stepper;

/// Where the fields of a task are, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TaskFields {
    /// `Header::state`.
    pub(crate) state: u32,
    /// `Header::vtable`.
    pub(crate) vtable: u32,
    /// `Vtable::poll`: the function that polls the task.
    pub(crate) poll: u32,
    /// `Vtable::trailer_offset`: from the header to the trailer.
    pub(crate) trailer_offset: u32,
    /// `Trailer::waker`, and in it the data of the waker: the header of the task that waits.
    pub(crate) waker_data: u32,
    /// The same, and in it the table of the waker.
    pub(crate) waker_table: u32,
}

/// `RUNNING` and `JOIN_WAKER` of a task's state. (tokio, `runtime/task/state.rs`)
const RUNNING: u64 = 1;
const JOIN_WAKER: u64 = 1 << 4;
/// Words of stack frames that one walk looks at for a waker.
const MOST_WORDS: usize = 1 << 14;
/// Words of four bytes before the functions: the address of the table of wakers, and the fields.
pub(crate) const HEAD_WORDS: usize = 8;

/// What the engine has to know of tokio in a program, in the section of a table that keeps it, read in place. Where the fields are changes from version to version and
/// from compiler to compiler; the debug information of the program says: `compile::tasks` reads it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TaskTable<'t> {
    /// `WAKER_VTABLE`: what makes a waker one of a task.
    pub(crate) wakers: Rva,
    fields: TaskFields,
    /// The functions that poll tasks, by rising address: relative address, bytes, and twice the number of the type with one added for what `Vtable::poll`
    /// points to.
    functions: Functions<'t>,
}

impl<'t> TaskTable<'t> {
    /// `None` if the section is not well-formed.
    pub(crate) fn read(section: &'t [u8]) -> Option<Self> {
        let (head, functions) = section.split_first_chunk::<{ 4 * HEAD_WORDS }>()?;
        let functions = Functions::read(functions)?;
        let (words, _) = head.as_chunks::<4>();
        let [low, high, state, vtable, poll, trailer_offset, waker_data, waker_table] =
            words.first_chunk::<HEAD_WORDS>()?.map(u32::from_le_bytes);
        let fields = TaskFields { state, vtable, poll, trailer_offset, waker_data, waker_table };
        Some(Self { wakers: Rva(u64::from(high) << 32 | u64::from(low)), fields, functions })
    }

    /// Whether its functions are there, by rising address.
    pub(crate) fn is_sound(&self) -> bool {
        self.functions.rise()
    }
}

/// The tasks of a module, in the process.
#[derive(Clone, Copy)]
struct Runtime<'t, 'r> {
    table: TaskTable<'t>,
    /// Actual address of relative address 0, wrapping.
    base: u64,
    read: &'r dyn Fn(u64) -> Option<u64>,
}

impl Runtime<'_, '_> {
    fn field(&self, base: u64, offset: u32) -> Option<u64> {
        let address = base.checked_add(u64::from(offset))?;
        if address.is_multiple_of(8) { (self.read)(address) } else { None }
    }

    fn is_of_tasks(&self, table: u64) -> bool {
        table == self.base.wrapping_add(self.table.wakers.0)
    }

    /// The function that polls the task with this header, and the number of its type.
    fn poll(&self, header: u64) -> Option<(u64, u32)> {
        let poll = self.field(self.field(header, self.table.fields.vtable)?, self.table.fields.poll)?;
        let rva = Rva(poll.wrapping_sub(self.base));
        let (start, kind) = self.table.functions.at(rva)?;
        (start == rva && kind & 1 == 1).then_some((poll, kind >> 1))
    }

    /// The header of the task that waits for this one, and the function that polls it.
    fn parent(&self, header: u64) -> Option<(u64, u64)> {
        let fields = &self.table.fields;
        // Else the waker is being put there.
        self.field(header, fields.state).filter(|state| state & JOIN_WAKER != 0)?;
        let vtable = self.field(header, fields.vtable)?;
        let trailer = header.checked_add(self.field(vtable, fields.trailer_offset)?)?;
        self.field(trailer, fields.waker_table).filter(|table| self.is_of_tasks(*table))?;
        let parent = self.field(trailer, fields.waker_data)?;
        Some((parent, self.poll(parent)?.0))
    }

    /// The task that a function of this type polls whose frame is at `frame`: the only one that is running, is of that type, and whose waker is there.
    fn polled(&self, frame: Range<u64>, future: u32, words: &mut usize) -> Option<u64> {
        let (data, table) = (self.table.fields.waker_data, self.table.fields.waker_table);
        let mut found = None;
        for at in frame.step_by(8) {
            *words = words.checked_sub(1)?;
            if !(self.read)(at).is_some_and(|table| self.is_of_tasks(table)) {
                continue;
            }
            let header = at.wrapping_add(u64::from(data)).wrapping_sub(u64::from(table));
            let header = (self.read)(header).filter(|header| {
                let is_running = self.field(*header, self.table.fields.state).is_some_and(|state| state & RUNNING != 0);
                is_running && self.poll(*header).is_some_and(|(_, of)| of == future)
            });
            match (header, found) {
                (Some(header), Some(other)) if header != other => return None,
                (Some(header), _) => found = Some(header),
                (None, _) => {}
            }
        }
        found
    }
}

impl<T: Target, M: Memory> Stepper<'_, '_, T, M> {
    /// Writes the frames of the tasks that wait for the innermost task that the stack polls to the front of `out`. Gives the index of the frame that polls it,
    /// and how many they are.
    pub(crate) fn waiting_tasks(&self, sp: u64, frames: &[Frame], out: &mut [Frame]) -> Option<(usize, usize)> {
        innermost(self.modules, &|address| self.read(address), sp, frames, out)
    }
}

/// The same for every processor.
#[inline(never)]
fn innermost(
    modules: &crate::Modules<'_>,
    read: &dyn Fn(u64) -> Option<u64>,
    mut sp: u64,
    frames: &[Frame],
    out: &mut [Frame],
) -> Option<(usize, usize)> {
    let mut words = MOST_WORDS;
    for (at, frame) in frames.iter().enumerate() {
        let lowest = core::mem::replace(&mut sp, frame.cfa.0);
        let Some((table, base, rva)) = modules.tasks_at(frame.lookup_pc()) else { continue };
        let Some((_, kind)) = table.functions.at(rva) else { continue };
        let runtime = Runtime { table, base, read };
        let Some(header) = runtime.polled(lowest..frame.cfa.0, kind >> 1, &mut words) else { continue };
        let written = follow(modules, &mut |header| runtime.parent(header), header, out);
        return Some((at, written));
    }
    None
}

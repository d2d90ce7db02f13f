//! Structures that begin with their size.
#![allow(unsafe_code, reason = "structures of C programs")]

use core::mem::size_of;

use crate::status::dwunw_status;

/// A structure whose first field is `uint32_t struct_size`. Every value of its bytes must be one of the structure.
///
/// # Safety
/// The implementor is `repr(C)`, begins with a `u32` and has integers and pointers alone.
pub(crate) unsafe trait Sized32: Copy {}

/// A copy of the structure at `from`. A larger one is of a later version: what this one does not know of it is left alone.
///
/// # Safety
/// `from` is null, or points to `struct_size` readable bytes, and at least four.
pub(crate) unsafe fn read<T: Sized32>(from: *const T) -> Result<T, dwunw_status> {
    // SAFETY: the caller's contract.
    unsafe { size_of_struct(from) }?;
    // SAFETY: the structure is there as a whole, aligned, and has no value that its type has not.
    Ok(unsafe { from.read() })
}

/// The `struct_size` of the structure at `from`, if a `T` fits. Nothing else is read of it: the rest of what is to be
/// written need not be initialised.
///
/// # Safety
/// As for [`read`], but that four bytes are initialised alone.
pub(crate) unsafe fn size_of_struct<T: Sized32>(from: *const T) -> Result<u32, dwunw_status> {
    if from.is_null() || !from.is_aligned() {
        return Err(dwunw_status::BadArgument);
    }
    // SAFETY: the first field, which is there.
    let size = unsafe { from.cast::<u32>().read() };
    if (size as usize) < size_of::<T>() { Err(dwunw_status::StructTooSmall) } else { Ok(size) }
}

/// Writes `value` over the structure at `to`, and leaves its `struct_size` and what a later version has behind it.
///
/// # Safety
/// As for [`size_of_struct`], and writable.
pub(crate) unsafe fn write<T: Sized32>(to: *mut T, value: T) -> Result<(), dwunw_status> {
    // SAFETY: the caller's contract.
    unsafe {
        let size = size_of_struct(to.cast_const())?;
        to.write(value);
        to.cast::<u32>().write(size);
    }
    Ok(())
}

/// Whether elements of `size` bytes, as an array of the caller has them, can hold a `T` each, one after the other.
pub(crate) fn stride_of<T: Sized32>(size: u32) -> Result<(), dwunw_status> {
    match size as usize {
        size if size < size_of::<T>() => Err(dwunw_status::StructTooSmall),
        size if !size.is_multiple_of(align_of::<T>()) => Err(dwunw_status::BadArgument),
        _ => Ok(()),
    }
}

/* libdwunw: unwinding and symbolising. The guide is docs/libdwunw.md.
 *
 * For C99 or later, and C++11 or later. No call is a cancellation point of a thread (pthread_cancel): a cancellation that is pending acts after it.
 *
 * Made by cbindgen from unwind/capi/src; unwind/capi/header writes it anew. */

#ifndef DWUNW_H
#define DWUNW_H

/* A BPF program has these types from vmlinux.h, and defines DWUNW_NO_STDINT before. */
#ifndef DWUNW_NO_STDINT
#include <stddef.h>
#include <stdint.h>
#endif

/*
 dwunw_capture_request.flags: what no window holds is read from process pid, by process_vm_readv or through /proc/PID/mem.
 */
#define DWUNW_CAPTURE_READ_TARGET 1

/*
 dwunw_capture_request.flags: thread tid of process pid is stopped with ptrace while it is captured; its registers are read then, and registers
 must be null. Goes with DWUNW_CAPTURE_READ_TARGET. A library for another processor than x86_64 says DWUNW_STATUS_UNSUPPORTED_ARCH and stops
 nothing. Each stop is a SIGCHLD for this process, and a status for whoever of its threads waits
 for any child.
 */
#define DWUNW_CAPTURE_STOP_TARGET 2

/*
 dwunw_capture_request.flags: where no rule and no frame pointer leads on, the stack is searched for the one word that calls account for.
 Frames found so have the method DWUNW_METHOD_SCAN: they are guesses. Frame pointers and leaves are held to the calls that were made then, and
 not believed where another word may be meant.
 */
#define DWUNW_CAPTURE_SCAN 4

/*
 dwunw_capture_request.flags: behind a complete stack come the frames that wait for its innermost asynchronous function and are on no stack
 (DWUNW_FRAME_LOGICAL), as far as windows or the reader have the contexts that lead there.
 */
#define DWUNW_CAPTURE_CONTINUATIONS 8

/*
 dwunw_frame.module: the frame lies in none.
 */
#define DWUNW_NO_MODULE UINT32_MAX

/*
 dwunw_frame.flags: pc is the next instruction to run. Without it, pc is a return address, and the call lies at pc - 1.
 */
#define DWUNW_FRAME_EXACT 1

/*
 dwunw_frame.flags: the frame is on no stack, and no depth of one. It waits for the one before it, the first such frame for an asynchronous
 function of the stack; cfa is the address of its context.
 */
#define DWUNW_FRAME_LOGICAL 2

/*
 Modules that a context takes unless told otherwise.
 */
#define DWUNW_DEFAULT_MODULES 4096

/*
 Files without a module that a context keeps unless told otherwise.
 */
#define DWUNW_DEFAULT_WARM_FILES 16

/*
 dwunw_module.flags: what is given in memory stays there, unchanged, until the module is removed; it is not copied.
 */
#define DWUNW_MODULE_LENT 1

/*
 dwunw_module.flags: every byte of a table is looked at, not its header alone.
 */
#define DWUNW_MODULE_VERIFY 2

/*
 Slots of dwunw_registers.regs.
 */
#define DWUNW_REGISTERS 32

/*
 The version of dwunw_registers that this header describes.
 */
#define DWUNW_REGISTERS_VERSION 1

/*
 dwunw_symbol.flags: this function was inlined into that of the next symbol.
 */
#define DWUNW_SYMBOL_INLINED 1

/*
 dwunw_symbol.flags: where the function ends is not known; the address may be beyond it.
 */
#define DWUNW_SYMBOL_APPROXIMATE 2

/*
 Frames of a capture unless told otherwise.
 */
#define DWUNW_DEFAULT_FRAMES 256

/*
 Addresses whose rules a scratch memory remembers unless told otherwise.
 */
#define DWUNW_DEFAULT_CACHE_ENTRIES 2048

/*
 Bytes for copies of a target's memory unless told otherwise.
 */
#define DWUNW_DEFAULT_TARGET_BYTES 32768

/*
 Bytes that are enough for a scratch memory with default options, at any address.
 */
#define DWUNW_SCRATCH_SIZE 114688

/*
 What a call came to. Numbers never change their meaning; a later version may add some.

 dwunw_capture gives those from 32 to 47 for a walk that ended before the end of the stack: the frames so far are there, and
 dwunw_capture_result.stop has the reason more finely.
 */
enum dwunw_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /*
   Done; for a walk: the stack is complete.
   */
  DWUNW_STATUS_OK = 0,
  /*
   A null pointer, a contradiction or a number out of range.
   */
  DWUNW_STATUS_BAD_ARGUMENT = 1,
  /*
   A structure's struct_size is smaller than this version's structure.
   */
  DWUNW_STATUS_STRUCT_TOO_SMALL = 2,
  /*
   No memory.
   */
  DWUNW_STATUS_OUT_OF_MEMORY = 3,
  /*
   A processor that this version does not unwind.
   */
  DWUNW_STATUS_UNSUPPORTED_ARCH = 4,
  /*
   A version of the register layout that this version does not know.
   */
  DWUNW_STATUS_UNSUPPORTED_VERSION = 5,
  /*
   There is no such file.
   */
  DWUNW_STATUS_FILE_NOT_FOUND = 6,
  /*
   The file cannot be opened, is no regular file, is empty or cannot be mapped.
   */
  DWUNW_STATUS_FILE_UNREADABLE = 7,
  /*
   Not an ELF file, or one whose headers contradict themselves, or ask for more addresses than there are.
   */
  DWUNW_STATUS_BAD_ELF = 8,
  /*
   A .uwt or .symx table that cannot be read, or that does not hold together.
   */
  DWUNW_STATUS_BAD_TABLE = 9,
  /*
   The files that were given for one module have different debug ids.
   */
  DWUNW_STATUS_ID_MISMATCH = 10,
  /*
   As many modules as the context takes.
   */
  DWUNW_STATUS_CACHE_FULL = 11,
  /*
   Another module begins at the address.
   */
  DWUNW_STATUS_ADDRESS_IN_USE = 12,
  /*
   No module has the number.
   */
  DWUNW_STATUS_NO_SUCH_MODULE = 13,
  /*
   The scratch memory is not initialised, or too small for the frames asked for.
   */
  DWUNW_STATUS_BAD_SCRATCH = 14,
  /*
   Another call uses the scratch memory at this moment.
   */
  DWUNW_STATUS_SCRATCH_BUSY = 15,
  /*
   There is no such process or thread.
   */
  DWUNW_STATUS_NO_SUCH_PROCESS = 16,
  /*
   The system does not let this process read or stop the target.
   */
  DWUNW_STATUS_NOT_PERMITTED = 17,
  /*
   The target could not be stopped, or its registers not be read.
   */
  DWUNW_STATUS_TARGET_UNREADABLE = 18,
  /*
   The next word lies beyond the stack bytes, or the target's memory cannot be read there; or the target was read 64 times for each frame that
   there is room for and 1,024 times at least, as no stack needs that was not made for it.
   */
  DWUNW_STATUS_STACK_UNREADABLE = 32,
  /*
   An address lies in no module, and nothing else led on; or the frame pointer leads to one in no module.
   */
  DWUNW_STATUS_ADDRESS_OUTSIDE_MODULES = 33,
  /*
   Nothing is known about how to unwind at an address, and nothing else led on.
   */
  DWUNW_STATUS_NO_UNWIND_DATA = 34,
  /*
   There is a rule, of a kind that is not carried out.
   */
  DWUNW_STATUS_UNSUPPORTED_RULE = 35,
  /*
   The stack contradicts its rules: the caller's frame would not lie above, or lies askew.
   */
  DWUNW_STATUS_BAD_STACK = 36,
  /*
   As many frames as there is room for.
   */
  DWUNW_STATUS_TRUNCATED = 37,
  /*
   Several return addresses were equally likely.
   */
  DWUNW_STATUS_AMBIGUOUS = 38,
  /*
   A rule needs a register whose value is not known.
   */
  DWUNW_STATUS_REGISTER_UNKNOWN = 39,
  /*
   The module has neither a symbol table nor an ELF file with symbols.
   */
  DWUNW_STATUS_NO_SYMBOLS = 48,
  /*
   No symbol covers the address.
   */
  DWUNW_STATUS_NO_SYMBOL_AT_ADDRESS = 49,
  /*
   The text buffer is full: some names are missing.
   */
  DWUNW_STATUS_TEXT_FULL = 50,
  /*
   The array of symbols is full: some are missing.
   */
  DWUNW_STATUS_SYMBOLS_FULL = 51,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum dwunw_status dwunw_status;
#else
typedef int32_t dwunw_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/*
 Why a walk over a stack ended: the numbers of docs/formats/reasons.md, which JSON and SQL have by name.
 */
enum dwunw_stop
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /*
   The rule says that there is no caller.
   */
  DWUNW_STOP_END_OF_STACK = 0,
  /*
   A zero frame pointer or return address ended the chain.
   */
  DWUNW_STOP_ROOT_FRAME_POINTER = 1,
  /*
   The next word lies beyond the stack bytes.
   */
  DWUNW_STOP_TRUNCATED_STACK = 2,
  /*
   The address lies in no module.
   */
  DWUNW_STOP_NO_MODULE = 3,
  /*
   The module's rules do not cover the address.
   */
  DWUNW_STOP_NO_RULE = 4,
  /*
   The module has no unwind rules.
   */
  DWUNW_STOP_NO_TABLE = 5,
  /*
   The rule is of a kind that is not carried out.
   */
  DWUNW_STOP_UNSUPPORTED_RULE = 6,
  /*
   The caller's frame would not lie above the callee's.
   */
  DWUNW_STOP_STACK_NOT_RISING = 7,
  /*
   The frame address is not aligned to a word.
   */
  DWUNW_STOP_MISALIGNED = 8,
  /*
   There is no room for more frames.
   */
  DWUNW_STOP_MAX_FRAMES = 9,
  /*
   Several return addresses were equally likely.
   */
  DWUNW_STOP_AMBIGUOUS = 10,
  /*
   The rule needs a register whose value is not known.
   */
  DWUNW_STOP_REGISTER_UNKNOWN = 11,
  /*
   The rule is that of a leaf, and the function called.
   */
  DWUNW_STOP_LEAF_CALLED = 12,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum dwunw_stop dwunw_stop;
#else
typedef uint32_t dwunw_stop;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/*
 How a frame was found from its callee: the numbers of docs/formats/reasons.md.
 */
enum dwunw_method
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /*
   The registers of the capture: the innermost frame.
   */
  DWUNW_METHOD_CONTEXT = 0,
  /*
   A rule of .eh_frame.
   */
  DWUNW_METHOD_CFI_EH_FRAME = 1,
  /*
   A rule of .debug_frame.
   */
  DWUNW_METHOD_CFI_DEBUG_FRAME = 2,
  /*
   Registers that a signal frame saved.
   */
  DWUNW_METHOD_SIGNAL_CONTEXT = 3,
  /*
   The rule of a linkage table entry.
   */
  DWUNW_METHOD_PLT = 4,
  /*
   The frame pointer, where no rule covered the address.
   */
  DWUNW_METHOD_FRAME_POINTER = 5,
  /*
   A leaf without a rule.
   */
  DWUNW_METHOD_LEAF = 6,
  /*
   A call through a null pointer.
   */
  DWUNW_METHOD_NULL_CALL = 7,
  /*
   A guess.
   */
  DWUNW_METHOD_SCAN = 8,
  /*
   A rule that a JIT compiler supplied.
   */
  DWUNW_METHOD_JIT_RULE = 9,
  /*
   What the function's own instructions do to its frame.
   */
  DWUNW_METHOD_PROLOGUE = 10,
  /*
   The exception directory of a Windows module.
   */
  DWUNW_METHOD_PDATA = 11,
  /*
   Compact unwind information of a Mach-O module.
   */
  DWUNW_METHOD_COMPACT_UNWIND = 12,
  /*
   Where the goroutine stopped for which a thread runs on its own stack.
   */
  DWUNW_METHOD_GOROUTINE_SWITCH = 13,
  /*
   The index table of an ARM module.
   */
  DWUNW_METHOD_EXIDX = 14,
  /*
   The table of functions of a Go program.
   */
  DWUNW_METHOD_GO_PCLNTAB = 15,
  /*
   Where a task goes on that waits for an asynchronous function of the stack; on no stack.
   */
  DWUNW_METHOD_ASYNC_PARENT = 16,
  /*
   ORC tables of a kernel.
   */
  DWUNW_METHOD_ORC = 17,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum dwunw_method dwunw_method;
#else
typedef uint32_t dwunw_method;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/*
 Processors. A snapshot of any of them can be described; DWUNW_STATUS_UNSUPPORTED_ARCH says that this version does not unwind it.
 */
enum dwunw_arch
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint16_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /*
   AMD64.
   */
  DWUNW_ARCH_X86_64 = 1,
  /*
   64-bit Arm, little-endian.
   */
  DWUNW_ARCH_AARCH64 = 2,
  /*
   32-bit MIPS, o32, big-endian.
   */
  DWUNW_ARCH_MIPS_BE = 3,
  /*
   32-bit MIPS, o32, little-endian.
   */
  DWUNW_ARCH_MIPS_LE = 4,
  /*
   IA-32.
   */
  DWUNW_ARCH_I686 = 5,
  /*
   64-bit RISC-V, little-endian.
   */
  DWUNW_ARCH_RISCV64 = 6,
  /*
   32-bit ARM, little-endian, in both instruction sets.
   */
  DWUNW_ARCH_ARM = 7,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum dwunw_arch dwunw_arch;
#else
typedef uint16_t dwunw_arch;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/*
 Where a name was read.
 */
enum dwunw_symbol_source
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint16_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /*
   Nowhere.
   */
  DWUNW_SYMBOL_SOURCE_NONE = 0,
  /*
   A .symx table.
   */
  DWUNW_SYMBOL_SOURCE_SYMX = 1,
  /*
   .symtab of the ELF file.
   */
  DWUNW_SYMBOL_SOURCE_ELF_SYMTAB = 2,
  /*
   .dynsym of the ELF file: exported functions alone.
   */
  DWUNW_SYMBOL_SOURCE_ELF_DYNSYM = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum dwunw_symbol_source dwunw_symbol_source;
#else
typedef uint16_t dwunw_symbol_source;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/*
 A set of modules.
 */
typedef struct dwunw_context dwunw_context;

/*
 Initialised scratch memory. One capture at a time uses it.
 */
typedef struct dwunw_scratch dwunw_scratch;

/*
 The registers of one thread at one instant.

 288 bytes without padding or pointers, the same on every processor, so that a program in the kernel can fill it.
 */
typedef struct dwunw_registers {
  /*
   sizeof(dwunw_registers).
   */
  uint32_t struct_size;
  /*
   DWUNW_REGISTERS_VERSION.
   */
  uint16_t version;
  /*
   A dwunw_arch.
   */
  uint16_t arch;
  /*
   Bit n: regs[n] is known. The stack pointer must be.
   */
  uint64_t valid;
  /*
   The program counter: the next instruction to run.
   */
  uint64_t pc;
  /*
   For return addresses that the processor signs: the bits that belong to no address; 0 where it signs none or that is not known.
   */
  uint64_t pac_mask;
  /*
   General registers by their DWARF numbers, each zero- or sign-extended to 64 bits. x86_64: rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp,
   r8 to r15; aarch64: x0 to x30, sp; mips: $0 to $31; i686: eax, ecx, edx, ebx, esp, ebp, esi, edi; riscv64: x0 to x31; arm: r0 to r15.
   */
  uint64_t regs[DWUNW_REGISTERS];
} dwunw_registers;

/*
 A copy of one range of a stack, or the stack itself. Several windows follow each other as in an array of C, at most 1,024.
 */
typedef struct dwunw_window {
  /*
   sizeof(dwunw_window).
   */
  uint32_t struct_size;
  /*
   0.
   */
  uint32_t reserved;
  /*
   The actual address of the first byte; on aarch64 without a tag in its top byte, whatever the stack pointer has there.
   */
  uint64_t start;
  /*
   The bytes, in the order of the target's memory.
   */
  const void *bytes;
  /*
   How many.
   */
  size_t size;
} dwunw_window;

/*
 One frame.
 */
typedef struct dwunw_frame {
  /*
   sizeof(dwunw_frame) of the library.
   */
  uint32_t struct_size;
  /*
   The number of the module that holds the frame, or DWUNW_NO_MODULE.
   */
  uint32_t module;
  /*
   Program counter, an actual address.
   */
  uint64_t pc;
  /*
   Canonical frame address: the stack pointer of the caller; 0 where it is not known.
   */
  uint64_t cfa;
  /*
   The frame pointer register in this frame; 0 where it is not known.
   */
  uint64_t fp;
  /*
   A dwunw_method: how the frame was found.
   */
  uint16_t method;
  /*
   DWUNW_FRAME_EXACT, DWUNW_FRAME_LOGICAL.
   */
  uint16_t flags;
  /*
   0.
   */
  uint32_t reserved;
} dwunw_frame;

/*
 Copies size bytes at the actual address of the target to buffer, and returns how many it could from the front on. It is called
 by the thread that captures, and must not call dwunw_module_add, dwunw_module_remove or dwunw_shutdown.

 It must return. Where it is left otherwise (siglongjmp, an exception of C++, pthread_exit) the scratch memory stays busy, and whoever adds or
 removes a module waits for ever. The thread is not cancelled in it.
 */
typedef size_t (*dwunw_read)(void *data, uint64_t address, void *buffer, size_t size);

/*
 What is to be captured.
 */
typedef struct dwunw_capture_request {
  /*
   sizeof(dwunw_capture_request).
   */
  uint32_t struct_size;
  /*
   DWUNW_CAPTURE_READ_TARGET, DWUNW_CAPTURE_STOP_TARGET, DWUNW_CAPTURE_SCAN, DWUNW_CAPTURE_CONTINUATIONS.
   */
  uint32_t flags;
  /*
   The registers, unless the target is stopped for them.
   */
  const struct dwunw_registers *registers;
  /*
   Stack bytes that are at hand: none, one or several. Each is taken for a stack of its own.
   */
  const struct dwunw_window *windows;
  /*
   How many windows, at most 1,024.
   */
  uint32_t window_count;
  /*
   sizeof(dwunw_frame) of the caller: what one element of frames takes, a multiple of 8.
   */
  uint32_t frame_size;
  /*
   Where the frames go, the innermost first.
   */
  struct dwunw_frame *frames;
  /*
   How many frames there is room for.
   */
  uint32_t max_frames;
  /*
   With DWUNW_CAPTURE_READ_TARGET: the process. Without DWUNW_CAPTURE_STOP_TARGET it may be any thread of it; where the first has ended, one that has not.
   */
  int32_t pid;
  /*
   With DWUNW_CAPTURE_STOP_TARGET: the thread; 0 for the one with the number of the process. One of another process is
   DWUNW_STATUS_BAD_ARGUMENT, and is not stopped.
   */
  int32_t tid;
  /*
   0.
   */
  uint32_t reserved;
  /*
   Memory that no other call uses.
   */
  struct dwunw_scratch *scratch;
  /*
   Reads what no window holds, in place of DWUNW_CAPTURE_READ_TARGET; or null.
   */
  dwunw_read read;
  /*
   Passed to read.
   */
  void *read_data;
} dwunw_capture_request;

/*
 How far a capture came.
 */
typedef struct dwunw_capture_result {
  /*
   sizeof(dwunw_capture_result), set by the caller.
   */
  uint32_t struct_size;
  /*
   Frames that were written, whatever the status is.
   */
  uint32_t written;
  /*
   A dwunw_stop: why there are no more. Holds where frames were written.
   */
  uint32_t stop;
  /*
   How often the target was read.
   */
  uint32_t target_reads;
} dwunw_capture_result;

/*
 Settings of a context.
 */
typedef struct dwunw_options {
  /*
   sizeof(dwunw_options).
   */
  uint32_t struct_size;
  /*
   The most modules at a time; 0 is DWUNW_DEFAULT_MODULES.
   */
  uint32_t max_modules;
  /*
   The most files that are kept after their last module was removed; 0 is DWUNW_DEFAULT_WARM_FILES, UINT32_MAX is none.
   */
  uint32_t max_warm_files;
  /*
   A dwunw_arch: the processor of all modules and captures. 0 is that of the first module with an ELF file or a .uwt, and until there
   is one, the processor that this library runs on.
   */
  uint32_t arch;
  /*
   A context whose files this one shares, and whose max_warm_files count; or null. Either may be shut down first.
   */
  const struct dwunw_context *share_files_of;
} dwunw_options;

/*
 What is known of a module. Of each of the three files give a path, or memory, or neither; both are DWUNW_STATUS_BAD_ARGUMENT, and so is a
 size without memory, also beside a path. Without any, the module is a range of addresses: its frames are numbered, and unwound by their frame pointers.
 */
typedef struct dwunw_module {
  /*
   sizeof(dwunw_module).
   */
  uint32_t struct_size;
  /*
   DWUNW_MODULE_LENT, DWUNW_MODULE_VERIFY.
   */
  uint32_t flags;
  /*
   The actual address of its first page: where the lowest loaded segment is mapped. Without any file it may be the address of any byte;
   with one, a start that is not whole pages (of 4,096 bytes) away from where the file says is DWUNW_STATUS_BAD_ARGUMENT.
   */
  uint64_t start;
  /*
   The actual address after its last byte; 0 where the ELF file or the .uwt says it. A range and a .symx alone need one.
   */
  uint64_t end;
  /*
   An ELF file: its unwind rules are compiled unless there is a .uwt, its symbols are used where no .symx names an address.
   */
  const char *elf_path;
  /*
   The same in memory.
   */
  const void *elf;
  /*
   Bytes at elf.
   */
  size_t elf_size;
  /*
   A bundle's unwind table.
   */
  const char *uwt_path;
  /*
   The same in memory.
   */
  const void *uwt;
  /*
   Bytes at uwt.
   */
  size_t uwt_size;
  /*
   A bundle's symbol table.
   */
  const char *symx_path;
  /*
   The same in memory.
   */
  const void *symx;
  /*
   Bytes at symx.
   */
  size_t symx_size;
  /*
   The build-id that its files must have, as a mapping's in a perf record; or null. Another one, or none, is DWUNW_STATUS_ID_MISMATCH.
   */
  const void *build_id;
  /*
   Bytes at build_id.
   */
  size_t build_id_size;
} dwunw_module;

/*
 What came of a module.
 */
typedef struct dwunw_module_info {
  /*
   sizeof(dwunw_module_info), set by the caller.
   */
  uint32_t struct_size;
  /*
   Its number, which frames refer to. Numbers are not given twice in one context.
   */
  uint32_t module;
  /*
   DWUNW_STATUS_OK, or DWUNW_STATUS_NO_UNWIND_DATA: frames in it are unwound by frame pointers alone.
   */
  int32_t unwind;
  /*
   DWUNW_STATUS_OK, or DWUNW_STATUS_NO_SYMBOLS.
   */
  int32_t symbols;
  /*
   First actual address, and the one after the last.
   */
  uint64_t start;
  /*
   See start.
   */
  uint64_t end;
  /*
   Actual minus stated address (svma), modulo 2^64.
   */
  uint64_t bias;
  /*
   How many of its files were known already, in use or warm.
   */
  uint32_t known_files;
  /*
   0.
   */
  uint32_t reserved;
} dwunw_module_info;

/*
 How full a context is.
 */
typedef struct dwunw_statistics {
  /*
   sizeof(dwunw_statistics), set by the caller.
   */
  uint32_t struct_size;
  /*
   Modules now.
   */
  uint32_t modules;
  /*
   The most modules at a time.
   */
  uint32_t max_modules;
  /*
   Files that modules use, of all contexts that share them.
   */
  uint32_t active_files;
  /*
   Files that are kept for the next time.
   */
  uint32_t warm_files;
  /*
   0.
   */
  uint32_t reserved;
} dwunw_statistics;

/*
 A name of a frame. A frame has one for each function that was inlined where it is, the innermost first, and one for the function
 itself; a frame without a name has one that says why.
 */
typedef struct dwunw_symbol {
  /*
   sizeof(dwunw_symbol) of the library.
   */
  uint32_t struct_size;
  /*
   The index of the frame.
   */
  uint32_t frame;
  /*
   DWUNW_STATUS_OK, or why there is no name.
   */
  int32_t status;
  /*
   The number of the module, or DWUNW_NO_MODULE.
   */
  uint32_t module;
  /*
   The stated address (svma) that was looked up; 0 without a module.
   */
  uint64_t svma;
  /*
   The stated address of the function; 0 without one. Of an inlined function: that of the one which it is part of.
   */
  uint64_t function_svma;
  /*
   The name, or null. By a .symx as the source language says it, where debug information has one; else, and by an ELF file alone always, the
   linkage name, which is for a demangler. This and the other texts lie in the text buffer, terminated; they are not demangled.
   */
  const char *function;
  /*
   The linkage name, or null. By a .symx, where code has neither a symbol nor a linkage name in debug information (a static function that was
   inlined), the bare name.
   */
  const char *symbol;
  /*
   The source file, or null.
   */
  const char *file;
  /*
   The line, or 0.
   */
  uint32_t line;
  /*
   The column, or 0.
   */
  uint32_t column;
  /*
   DWUNW_SYMBOL_INLINED, DWUNW_SYMBOL_APPROXIMATE.
   */
  uint16_t flags;
  /*
   A dwunw_symbol_source.
   */
  uint16_t source;
  /*
   0.
   */
  uint32_t reserved;
} dwunw_symbol;

/*
 What is to be named.
 */
typedef struct dwunw_resolve_request {
  /*
   sizeof(dwunw_resolve_request).
   */
  uint32_t struct_size;
  /*
   sizeof(dwunw_frame) of the caller.
   */
  uint32_t frame_size;
  /*
   Frames of dwunw_capture, or such as the caller made of addresses: with DWUNW_NO_MODULE the module is looked for by pc.
   */
  const struct dwunw_frame *frames;
  /*
   How many frames.
   */
  uint32_t frame_count;
  /*
   sizeof(dwunw_symbol) of the caller.
   */
  uint32_t symbol_size;
  /*
   Where the names go, in the order of the frames.
   */
  struct dwunw_symbol *symbols;
  /*
   How many names there is room for.
   */
  uint32_t max_symbols;
  /*
   0.
   */
  uint32_t reserved;
  /*
   A buffer for texts.
   */
  char *text;
  /*
   Its size in bytes.
   */
  size_t text_size;
} dwunw_resolve_request;

/*
 How far the naming came.
 */
typedef struct dwunw_resolve_result {
  /*
   sizeof(dwunw_resolve_result), set by the caller.
   */
  uint32_t struct_size;
  /*
   Symbols that were written.
   */
  uint32_t written;
  /*
   Symbols that there are; more than written where the array was full.
   */
  uint32_t needed;
  /*
   Frames that have at least a function's name.
   */
  uint32_t named;
  /*
   Bytes of text that there are; with a buffer of this size no text is missing.
   */
  uint64_t text_needed;
} dwunw_resolve_result;

/*
 What a scratch memory is to have room for. A field that is 0 stands for the default; none may be above 2^24, but for UINT32_MAX where that is told of.
 */
typedef struct dwunw_scratch_options {
  /*
   sizeof(dwunw_scratch_options).
   */
  uint32_t struct_size;
  /*
   The most frames of one capture.
   */
  uint32_t max_frames;
  /*
   Addresses whose rules are remembered; best a power of two. UINT32_MAX remembers as few as can be.
   */
  uint32_t cache_entries;
  /*
   Bytes for copies of a target's memory. UINT32_MAX has none: then a target is read word by word.
   */
  uint32_t target_bytes;
} dwunw_scratch_options;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Unwinds one stack. Allocates nothing, takes no lock, leaves errno alone, and reads no memory but what the request names. The
 registers are of the processor of the context: DWUNW_STATUS_UNSUPPORTED_ARCH says that they are not.

 Gives DWUNW_STATUS_OK for a complete stack; a status from 32 on for one that ends early, with the frames so far and the
 reason in *result; DWUNW_STATUS_NO_SUCH_PROCESS or DWUNW_STATUS_NOT_PERMITTED where that is so because the target is gone or may not be
 read, with the frames so far as well; other statuses without frames. May be called by many threads at once, each with its own scratch memory, and
 from a signal handler. A handler that interrupts it must return to it, and not leave by siglongjmp: see dwunw_read.

 # Safety
 The pointers are null or what their types say; arrays have the lengths that the request gives.
 */
dwunw_status dwunw_capture(const struct dwunw_context *context,
                           const struct dwunw_capture_request *request,
                           struct dwunw_capture_result *result);

/*
 Makes an empty context. options may be null.

 Gives DWUNW_STATUS_OK and the context in *context, else null there. To be ended with dwunw_shutdown.

 A child of fork may go on with it, and with scratch memory that other threads of its parent were using, unless another thread was adding or
 removing a module, or this one was capturing, when it was made; then it makes one of its own.

 # Safety
 The pointers are null or what their types say.
 */
dwunw_status dwunw_init(const struct dwunw_options *options,
                        struct dwunw_context **context);

/*
 Removes every module and frees the context. Nothing may use it at this moment or later. Null is taken for nothing to do.

 # Safety
 A context that dwunw_init gave and that was not shut down, or null.
 */
void dwunw_shutdown(struct dwunw_context *context);

/*
 Adds a module. Its files are read and its unwind rules compiled before anything is locked, so that many threads add at once.

 Gives the module's number and what can be expected of it in *info, which may be null. Frames that are being unwound at this
 moment see the module or do not. Takes time for each module that there is: many at once are added by dwunw_modules_add. Takes some 30 KB of stack.

 # Safety
 The pointers are null or what their types say; memory that is lent stays until the module is removed.
 */
dwunw_status dwunw_module_add(struct dwunw_context *context,
                              const struct dwunw_module *module,
                              struct dwunw_module_info *info);

/*
 Adds count modules as dwunw_module_add does, and makes them known together: frames that are being unwound at this moment see all of them
 or none. Elements of modules, and of infos, follow each other as in an array of C, each as large as the first.

 Gives DWUNW_STATUS_OK if all were added. Else those that could be are there, and the first other status is given; statuses has that of each.
 infos and statuses may be null; the info of a module that was not added is left alone.

 # Safety
 The pointers are null or what their types say, and arrays have count elements; memory that is lent stays until the module is removed.
 */
dwunw_status dwunw_modules_add(struct dwunw_context *context,
                               const struct dwunw_module *modules,
                               uint32_t count,
                               struct dwunw_module_info *infos,
                               int32_t *statuses);

/*
 Removes a module. When this returns, no other call uses the module or memory that was lent for it. Waits for walks that are
 under way; so it must not be called from a dwunw_read function, nor from a signal handler. Takes time for each module that there is.

 # Safety
 A context, or null.
 */
dwunw_status dwunw_module_remove(struct dwunw_context *context,
                                 uint32_t module);

/*
 Says how full a context is.

 # Safety
 The pointers are null or what their types say.
 */
dwunw_status dwunw_context_statistics(const struct dwunw_context *context,
                                      struct dwunw_statistics *statistics);

/*
 Names many frames at once: by the module's .symx, where it has none or does not know the address by the symbols of its ELF file.

 Gives DWUNW_STATUS_OK also where frames have no name, which their symbols say; DWUNW_STATUS_TEXT_FULL or DWUNW_STATUS_SYMBOLS_FULL
 where room was short, with what there was room for. Takes no lock; allocates once for each ELF file, when its symbols
 are first asked for, so it does not belong into a signal handler.

 # Safety
 The pointers are null or what their types say; arrays have the lengths that the request gives.
 */
dwunw_status dwunw_symbol_resolve_batch(const struct dwunw_context *context,
                                        const struct dwunw_resolve_request *request,
                                        struct dwunw_resolve_result *result);

/*
 Bytes that scratch memory with these options takes, at any address; 0 if the options are none. options may be null.

 # Safety
 The pointer is null or what its type says.
 */
size_t dwunw_scratch_size(const struct dwunw_scratch_options *options);

/*
 Makes scratch memory of size bytes at memory. It needs no ending: the caller takes its memory back when it likes.

 Gives DWUNW_STATUS_OK and the scratch memory in *scratch, else null there. The memory must not be copied, moved or shared by processes. It may
 serve several contexts in turn, and one call at a time. In a child of fork it is free if another thread of the parent was using it (from Linux 4.14 on).

 # Safety
 The pointers are null or what their types say; memory has size bytes.
 */
dwunw_status dwunw_scratch_init(void *memory,
                                size_t size,
                                const struct dwunw_scratch_options *options,
                                struct dwunw_scratch **scratch);

/*
 A sentence for a status, in English; never null, and valid for ever. Any number may be given.
 */
const char *dwunw_strerror(int32_t status);

/*
 The stable text of a dwunw_stop, such as "truncated-stack"; never null.
 */
const char *dwunw_stop_name(uint32_t stop);

/*
 The stable text of a dwunw_method, such as "cfi-eh-frame"; never null.
 */
const char *dwunw_method_name(uint32_t method);

/*
 The version of this library: "MAJOR.MINOR.PATCH".
 */
const char *dwunw_version(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* DWUNW_H */

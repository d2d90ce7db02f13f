// A program that stops on the stack of its thread, called from main: in C, in C that Go called which C had called, in a function of Go's own runtime, and where that asks the kernel's vDSO for the time.
package main

/*
#include <stdint.h>

// With functions that C calls this is compiled twice.
#define ONCE __attribute__((weak))

ONCE uint64_t callers[64];
ONCE int caller_count;
ONCE uint64_t c_callers[2];

extern void comeBack(void);

static void __attribute__((noinline)) inner(void) {
    c_callers[0] = (uint64_t)__builtin_return_address(0);
    __asm__ volatile("int3");
}

static void __attribute__((noinline)) outer(void) {
    c_callers[1] = (uint64_t)__builtin_return_address(0);
    inner();
    __asm__ volatile("");
}

static void __attribute__((noinline)) through(void) {
    comeBack();
    __asm__ volatile("");
}
*/
import "C"

import (
	"os"
	"runtime"
	"time"
)

// The thread that the process began with, which is traced.
func init() { runtime.LockOSThread() }

// Where the functions above its caller go on, as Go's own runtime finds it.
//
//go:noinline
func note() {
	var callers [64]uintptr
	C.caller_count = C.int(runtime.Callers(3, callers[:]))
	for at, pc := range callers {
		C.callers[at] = C.uint64_t(pc)
	}
}

//export comeBack
//go:noinline
func comeBack() { C.outer() }

//go:noinline
func third(text []byte) int {
	note()
	C.outer()
	C.through()
	written := runtime.Stack(text, false)
	if time.Now().IsZero() {
		return 0
	}
	return written
}

//go:noinline
func second(text []byte) int {
	written := third(text)
	return written + 1
}

func main() {
	if second(make([]byte, 4096)) < 10 {
		os.Exit(1)
	}
}

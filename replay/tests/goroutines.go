// A program whose main goroutine waits in C, on the stack of a thread, and says before who called whom.
package main

/*
#include <stdio.h>
#include <stdint.h>
#include <unistd.h>

static void __attribute__((noinline)) innermost(uintptr_t *callers, int count) {
    for (int at = 0; at < count; at++)
        printf("%#lx\n", (unsigned long)callers[at]);
    puts("ready");
    fflush(stdout);
    for (;;)
        pause();
}

static void __attribute__((noinline)) in_c(uintptr_t *callers, int count) {
    innermost(callers, count);
    __asm__ volatile("");
}
*/
import "C"

import "runtime"

// The thread that the process began with.
func init() { runtime.LockOSThread() }

//go:noinline
func leaves() {
	var callers [64]uintptr
	count := runtime.Callers(2, callers[:])
	var told [64]C.uintptr_t
	for at, pc := range callers {
		told[at] = C.uintptr_t(pc)
	}
	C.in_c(&told[0], C.int(count))
}

//go:noinline
func works(depth int) int {
	if depth == 0 {
		leaves()
		return 0
	}
	return works(depth-1) + 1
}

func main() {
	works(3)
}

"""Functions on end of a CPython that writes a jitdump: `python3.13 -X perf_jit`."""

import sys
import time


def innermost(depth):
    if depth:
        innermost(depth - 1)
    elif is_warm:
        print("active" if sys.is_stack_trampoline_active() else "inactive")
        print("ready", flush=True)
        time.sleep(1000)


def between():
    innermost(3)


def outermost():
    between()


# CPython writes of a function when it is first called, and keeps two megabytes of that to itself: as many functions go behind those that count.
is_warm = False
outermost()
for number in range(20000):
    exec(f"def function_{number}(): pass\nfunction_{number}()", {})
is_warm = True
outermost()

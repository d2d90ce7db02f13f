"""Runs a command on a terminal of its own and types a line, unseen, at each prompt (a text that ends in ": ").

    on_a_terminal.py LINE... -- COMMAND...

Prints what the terminal showed; the exit status is the command's.
"""
import os
import pty
import sys
import termios
import time

split = sys.argv.index("--")
lines, command = sys.argv[1:split], sys.argv[split + 1:]
child, terminal = pty.fork()
if child == 0:
    os.execvp(command[0], command)
shown = b""
answered = 0
while True:
    try:
        piece = os.read(terminal, 1024)
    except OSError:  # Linux: the other side is closed.
        break
    if not piece:
        break
    shown += piece
    if shown.endswith(b": ") and lines and len(shown) > answered:
        answered = len(shown)
        # A program shows its prompt before it turns the echo off; nobody types that fast.
        end = time.monotonic() + 10
        while termios.tcgetattr(terminal)[3] & termios.ECHO and time.monotonic() < end:
            time.sleep(0.005)
        os.write(terminal, lines.pop(0).encode() + b"\n")
_, status = os.waitpid(child, 0)
sys.stdout.write(shown.decode(errors="replace"))
sys.exit(os.waitstatus_to_exitcode(status))

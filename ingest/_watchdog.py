"""Runs one service for a parent process, and ends it when the parent is gone, however it went.

Started by path with a bare interpreter (`-I -S`), so it imports the standard library only and nothing of ours:

    python -I -S _watchdog.py PARENT_PID COMMAND [ARGUMENT ...]

The parent holds the writing end of our standard input and never writes to it; the end of that stream means "stop".
One line goes to standard output: the service's process id. Whatever the service prints goes to our standard error.
Our exit code is the service's, or 128 + signal.

Two more nets, for what a pipe cannot see: a process that the parent forked can hold the pipe open after the parent is
dead, so the parent's id is looked at as well; and when this process itself is killed with -9, Linux kills the service
(PR_SET_PDEATHSIG is tied to the thread that started it, and this process has only one).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time

PR_SET_PDEATHSIG = 1
PARENT_CHECK_S = 0.5
GRACE_S = 3.0


def die_with_parent() -> None:
    """In a child, before it becomes its program: ask Linux for a SIGKILL when the thread that started it dies."""
    if sys.platform == "linux":
        import ctypes

        # Without it the pipe still ends the service in every case but a watchdog killed with -9.
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _wait_for_end(service: subprocess.Popen[bytes], parent: int, wake: int) -> None:
    """Return when the service has ended, the parent closed its pipe, or the parent is no longer our parent."""
    while service.poll() is None and os.getppid() == parent:
        readable, _, _ = select.select([0, wake], [], [], PARENT_CHECK_S)
        if wake in readable:
            os.read(wake, 4096)
        if 0 in readable and not os.read(0, 4096):
            return


def _stop(service: subprocess.Popen[bytes]) -> int:
    if service.poll() is None:
        service.terminate()
    deadline = time.monotonic() + GRACE_S
    while service.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    if service.poll() is None:
        service.kill()
    code = service.wait()
    return code if code >= 0 else 128 - code


def main(parent: int, command: list[str]) -> int:
    # The terminal's Ctrl-C and hang-up are for the parent, which stops its services when it is ready to.
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    wake, ring = os.pipe()
    os.set_blocking(ring, False)
    signal.set_wakeup_fd(ring, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: os.close(0))
    service = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=2, preexec_fn=die_with_parent)
    try:
        os.write(1, b"%d\n" % service.pid)
        with contextlib.suppress(OSError, ValueError):
            _wait_for_end(service, parent, wake)
    finally:
        code = _stop(service)
    return code


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))

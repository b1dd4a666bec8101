"""Runs a command as on an older kernel: system calls from FIRST to LAST fail with ENOSYS, or with EPERM as where an old
container runtime forbids what it does not know.

Usage: old_kernel.py FIRST LAST ENOSYS|EPERM COMMAND [ARGUMENT...]       (new calls have one number on all processors)
Linux 4.18 (RHEL 8) has none from 424 on: pidfd_send_signal and pidfd_open (434), close_range, openat2, clone3.
"""

import ctypes
import errno
import os
import struct
import sys

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER = 38, 22, 2
_LOAD, _JUMP_IF_AT_LEAST, _JUMP_IF_ABOVE, _RETURN = 0x20, 0x35, 0x25, 0x06
_ALLOW, _FAIL_WITH = 0x7FFF0000, 0x00050000


def instruction(code, value, if_true=0, if_false=0):
    return struct.pack("HBBI", code, if_true, if_false, value)


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def main():
    first, last, name, *command = sys.argv[1:]
    text = b"".join([
        instruction(_LOAD, 0),  # the number of the call
        instruction(_JUMP_IF_AT_LEAST, int(first), 0, 2),
        instruction(_JUMP_IF_ABOVE, int(last), 1, 0),
        instruction(_RETURN, _FAIL_WITH | getattr(errno, name)),
        instruction(_RETURN, _ALLOW),
    ])  # fmt: skip
    program = Program(5, text)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(_PR_SET_SECCOMP, _FILTER, ctypes.byref(program), 0, 0):
        sys.exit(f"seccomp: {os.strerror(ctypes.get_errno())}")
    os.execvp(command[0], command)


main()

#!/usr/bin/env python3
"""Runs a program in a sandbox that lets it set no option of a socket: setsockopt gives ENOPROTOOPT, by seccomp(2)."""

import ctypes
import errno
import os
import platform
import struct
import sys

PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 22, 38, 2
LOAD_WORD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
REFUSE, ALLOW = 0x00050000 | errno.ENOPROTOOPT, 0x7FFF0000
SETSOCKOPT = {"x86_64": 54, "aarch64": 208}[platform.machine()]


class Program(ctypes.Structure):
    _fields_ = [("instructions", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def install():
    instructions = [
        (LOAD_WORD, 0, 0, 0),  # the number of the call
        (JUMP_IF_EQUAL, 0, 1, SETSOCKOPT),
        (RETURN, 0, 0, REFUSE),
        (RETURN, 0, 0, ALLOW),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *it) for it in instructions))
    program = Program(len(instructions), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program)) != 0:
        raise OSError(ctypes.get_errno(), "seccomp")


install()
os.execv("@PROGRAM@", ["@PROGRAM@", *sys.argv[1:]])

"""Runs a Python program that the kernel kills where it tries to reach anybody.

``python no_network.py -m vitrail …`` ends by SIGSYS at the first attempt to connect, or to send to an address, by Python or by
native code of any library in any thread: a look-up of a name, too. Linux on x86-64 and aarch64 only.
"""

import ctypes
import platform
import runpy
import struct
import sys

SUPPORTED = sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64")
CALLS = {"x86_64": (42, 44), "aarch64": (203, 206)}
"""The numbers of ``connect`` and ``sendto``."""
LOAD, IF_EQUAL, RETURN = 0x20, 0x15, 0x06
KILL, ALLOW = 0x80000000, 0x7FFF0000
ADDRESS = 16 + 8 * 4
"""Where, in what the kernel tells of a call, the address stands that ``sendto`` is given; none is 0."""


def forbid() -> None:
    """Have the kernel kill this process and those it starts where they connect or send to an address."""
    connect, send_to = CALLS[platform.machine()]
    steps = (
        (LOAD, 0, 0, 0),
        (IF_EQUAL, 5, 0, connect),
        (IF_EQUAL, 0, 5, send_to),
        (LOAD, 0, 0, ADDRESS),
        (IF_EQUAL, 0, 2, 0),
        (LOAD, 0, 0, ADDRESS + 4),
        (IF_EQUAL, 1, 0, 0),
        (RETURN, 0, 0, KILL),
        (RETURN, 0, 0, ALLOW),
    )
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    filters = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(program)))
    library = ctypes.CDLL(None, use_errno=True)
    for words in ((38, 1, 0, 0, 0), (22, 2, filters, 0, 0)):  # no new privileges, which filters of system calls need
        if library.prctl(*words) != 0:
            raise OSError(ctypes.get_errno(), "the kernel takes no filter")


def main() -> None:
    forbid()
    sys.argv = sys.argv[1:]
    if sys.argv[0] == "-m":
        sys.argv = sys.argv[1:]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = sys.argv[1:] if sys.argv[0] == "-c" else sys.argv
        exec(sys.argv[0], {"__name__": "__main__"})


if __name__ == "__main__":
    main()

"""Keeps the GPU code of one architecture in a CUDA library, so that it compresses to a fifth.

    python prune.py LIBRARY OUT ARCHITECTURE    # such as 90 for H100 and H200

For machines that take only small files: the rest of the code is overwritten by zeros, and the driver never reads it. Code for
other architectures only, without one for sm_80, such as kernels of mixtures of experts, is removed as a whole.
"""

import struct
import sys

# Of a fat binary in section .nv_fatbin: magic, version, bytes of the header, bytes of the entries.
HEADER = struct.Struct("<IHHQ")
MAGIC = struct.pack("<I", 0xBA55ED50)
PROGRAM = 2  # The kind of an entry with machine code; 1 is PTX.


def entries(library, start, end):
    """The kind, architecture and place of each entry."""
    while start + 64 <= end:
        kind, _, header, size = struct.unpack_from("<HHIQ", library, start)
        (architecture,) = struct.unpack_from("<I", library, start + 28)
        if kind not in (1, PROGRAM) or not 64 <= header <= 4096:
            return
        yield kind, architecture, slice(start + header, start + header + size)
        start += header + size


def prune(library, wanted):
    """Overwrites what is not wanted; returns the number of bytes."""
    removed, start = 0, library.find(MAGIC)
    while start >= 0:
        _, version, header, size = HEADER.unpack_from(library, start)
        end = start + header + size
        if (version, header) != (1, HEADER.size) or end > len(library):
            start = library.find(MAGIC, start + 4)
            continue
        found = list(entries(library, start + header, end))
        programs = {architecture for kind, architecture, _ in found if kind == PROGRAM}
        is_needed = wanted in programs and programs & {75, 80}
        for kind, architecture, place in found:
            if not (is_needed and kind == PROGRAM and architecture == wanted):
                removed += place.stop - place.start
                library[place] = bytes(place.stop - place.start)
        start = library.find(MAGIC, end)
    return removed


if __name__ == "__main__":
    source, out, wanted = sys.argv[1:]
    with open(source, "rb") as file:
        library = bytearray(file.read())
    removed = prune(library, int(wanted))
    if not removed:
        sys.exit(f"{source}: expected GPU code of several architectures, found none")
    with open(out, "wb") as file:
        file.write(library)
    print(f"{removed / 1e6:.0f} of {len(library) / 1e6:.0f} MB are zeros now")

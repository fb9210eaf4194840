"""A progress counter in Python, for `assay reflect watch --progress FILE`.

    progress = Progress("/dev/shm/my-server")
    ...
    progress.finished()     # after each unit of work

The layout of the file is that of crates/reflect/src/progress.rs: 64 lines of 64 bytes, the first with a mark and advice,
which is left empty here, each other one with two numbers of 64 bits: units that finished, and units that failed. Python
cannot add to memory that others write: each process needs a file of its own, and its threads a lock. Give all files to
`watch`, which adds them up.

Run as a program, it counts the lines of standard input, and those that are empty as failures.
"""

import mmap
import os
import sys

MARK = b"assay.p1"
SIZE = 4096
LINE = 64
NUMBER = 8


class Progress:
    """The progress counter of this process. An existing one is continued."""

    def __init__(self, path):
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            size = os.fstat(file).st_size
            if size not in (0, SIZE) or os.read(file, len(MARK)) not in (b"", bytes(len(MARK)), MARK):
                raise ValueError(f"{path} is no progress counter; remove it or give another name")
            os.ftruncate(file, SIZE)
            page = mmap.mmap(file, SIZE)
        finally:
            os.close(file)
        page[:LINE] = MARK.ljust(LINE, b"\0")
        # A number in a view is written at once. The module struct clears it before, and others would read
        # zero.
        self.counts = memoryview(page).cast("Q")[LINE // NUMBER : LINE // NUMBER + 2]

    def finished(self, units=1):
        """Counts units of work that succeeded."""
        self.counts[0] += units

    def failed(self, units=1):
        """Counts units of work that failed."""
        self.counts[1] += units


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} FILE")
    progress = Progress(sys.argv[1])
    for line in sys.stdin:
        if line.strip():
            progress.finished()
        else:
            progress.failed()

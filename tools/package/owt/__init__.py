"""owt trains convolutional networks. This package contains the program: `owt`, or `python -m owt`."""
import os
import sys

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "owt")


def main():
    """Becomes the program, with this process's arguments."""
    os.execv(PROGRAM, ["owt", *sys.argv[1:]])

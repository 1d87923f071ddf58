"""owt trains convolutional networks. This package contains the program: `owt`, or `python -m owt`. It also reads runs:

    for run in owt.runs("runs/*"):
        print(run.name, run.config["optimizer"]["learning_rate"], run.metrics("eval"), run.weights())
"""
import os
import sys

from owt.reader import Error, Run, read_safetensors, runs

__all__ = ["Error", "Run", "main", "read_safetensors", "runs"]
PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "owt")


def main():
    """Becomes the program, with this process's arguments. `owt log-to` is a command of this package."""
    words = sys.argv[1:]
    if words[:2] == ["help", "log-to"]:
        words = ["log-to", "--help"]
    if words[:1] == ["log-to"]:
        from owt import log_to
        sys.exit(log_to.main(words[1:]))
    try:
        os.execv(PROGRAM, ["owt", *words])
    except OSError as e:
        sys.exit(f"owt: error: cannot start {PROGRAM}: {e.strerror}; install the wheel again, or use a build's own owt")

"""Commands that end with all their processes: at a time limit, or when this process is terminated."""
import glob
import os
import shutil
import signal
import subprocess
import sys

CUDA = os.environ.get("CUDA_HOME", "/usr/local/cuda")
_running = set()


def find_tool(name):
    """A program of the CUDA toolkit, from the path or the folders of NVIDIA's packages. None if it is not installed."""
    folders = [f"{CUDA}/bin", f"{CUDA}/compute-sanitizer", f"{CUDA}/nsight-*", "/opt/nvidia/nsight-*/*"]
    found = [folder for pattern in folders for folder in sorted(glob.glob(pattern))]
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *found]))


def run(words, seconds, log, **how):
    """Exit status, or None after the time limit. The command's output goes to the file `log`; `how` is for Popen."""
    with open(log, "wb") as file:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
                                   start_new_session=True, **how)
    _running.add(process)
    try:
        return process.wait(max(seconds, 0))
    except subprocess.TimeoutExpired:
        return None
    finally:
        end(process)
        _running.discard(process)


def end(process):
    """Ends its process group, first by SIGTERM, so that it can end processes outside the group."""
    for number, seconds in ((signal.SIGTERM, 5), (signal.SIGKILL, None)):
        try:
            os.killpg(process.pid, number)
            process.wait(seconds)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass


def end_with_commands(before=lambda: None):
    """Makes SIGTERM call `before`, end the commands and then this process."""
    def told_to_end(*_):
        before()
        for process in list(_running):
            end(process)
        sys.exit(143)
    signal.signal(signal.SIGTERM, told_to_end)

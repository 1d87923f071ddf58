#!/usr/bin/env python3
"""Trains one recipe with run.canonical = true in many ways, and compares the bits of all weights and optimizer states.

    usage: canonical_bits.py PROGRAM CONFIG [--steps N] [--workers K,...] [--strategies NAME,...] [--threads T,...]
                             [--transports threads,mpi,launcher] [--set KEY=VALUE]... [--out DIR]

Prints a row for each strategy: the number of runs, and the first digits of the hash of their last checkpoint. Exits 1 if
two runs differ, or one fails.
"""
import argparse
import glob
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile

STRATEGIES = "dp,dp-zero,dp-star,ps,owt-a,owt-b,owt-c,owt-d,mp,mp-dense,pipeline"


def launcher(program, transport, workers):
    return {"threads": [],
            "mpi": ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", str(workers)],
            "launcher": [program, "launch", "--workers", str(workers)]}[transport]


def hash_of(run):
    digest = hashlib.sha256()
    folders = [name for name in glob.glob(os.path.join(run, "checkpoints", "*")) if os.path.isdir(name)]
    for name in sorted(glob.glob(os.path.join(max(folders), "*.safetensors"))):
        with open(name, "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()[:12]


def trained(options, folder, strategy, workers, threads, transport):
    """The hash of a run; None if it has failed."""
    run = os.path.join(folder, "run")
    shutil.rmtree(run, ignore_errors=True)
    line = launcher(options.program, transport, workers) + [
        options.program, "train", options.config, "--out", run, "--parallel", strategy, "--steps", str(options.steps),
        "--threads", str(threads), "--set", "run.canonical=true", "--set", "run.eval_every_epochs=0"]
    if transport == "threads":
        line += ["--workers", str(workers)]
    for key in options.set:
        line += ["--set", key]
    done = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                          env={**os.environ, "OMP_WAIT_POLICY": "PASSIVE"})
    if done.returncode != 0:
        print(f"{' '.join(line)}\n{done.stdout}", file=sys.stderr)
        return None
    return hash_of(run)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("program", type=os.path.abspath)
    parser.add_argument("config")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--workers", default="1,2,3,4,8")
    parser.add_argument("--strategies", default=STRATEGIES)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--transports", default="threads,mpi,launcher")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--out")
    options = parser.parse_args()
    folder = options.out or tempfile.mkdtemp(prefix="owt_canonical_")
    os.makedirs(folder, exist_ok=True)
    every = set()
    for strategy in options.strategies.split(","):
        hashes = [trained(options, folder, strategy, int(workers), int(threads), transport)
                  for transport in options.transports.split(",") for workers in options.workers.split(",")
                  for threads in options.threads.split(",")]
        every.update(hashes)
        print(f"{strategy:10} {len(hashes)} runs  {' '.join(sorted(str(found) for found in set(hashes)))}", flush=True)
    print("one hash" if len(every) == 1 and None not in every else f"{len(every)} hashes")
    if not options.out:
        shutil.rmtree(folder)
    return 0 if len(every) == 1 and None not in every else 1


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Packs a build as a wheel, and prints the wheel's path.

usage: tools/package/wheel.py BUILD FOLDER [PREFIX]

The wheel has the package `owt` beside this file, the programs of BUILD without their symbols, the recipes, and the
licences of the libraries that the programs use. It runs only where these libraries are; tools/wheel.sh adds them.
PREFIX is the folder of libraries that are not a package of the system's. Needs strip, ldd and dpkg-query.
"""
import base64
import hashlib
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Libraries of which only headers or archives are used: ldd does not list them.
UNLISTED = ["libarchive-dev", "libopencv-core-dev", "librandom123-dev", "nlohmann-json3-dev"]
# What every system has, and the programs' own library.
NOT_BUNDLED = re.compile(r"linux-vdso|ld-linux|lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s|owt_device)\.so")
METADATA = """\
Metadata-Version: 2.1
Name: owt
Version: {version}
Summary: {summary}
License: MIT
Requires-Python: >=3.8
Description-Content-Type: text/markdown
Provides-Extra: cuda13
Requires-Dist: nvidia-cublas >=13, <14; extra == "cuda13"
Requires-Dist: nvidia-cuda-nvrtc >=13, <14; extra == "cuda13"
Requires-Dist: nvidia-cudnn-cu13 >=9.19, <10; extra == "cuda13"
Requires-Dist: nvidia-nccl-cu13 >=2.28, <3; extra == "cuda13"

{readme}"""
WHEEL = "Wheel-Version: 1.0\nGenerator: tools/package/wheel.py\nRoot-Is-Purelib: false\nTag: {tag}\n"


def output(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, universal_newlines=True).stdout


def libraries_of(program):
    """The paths of the shared libraries of others that a program needs, without those that every system has."""
    found = re.findall(r"^\s*(\S+) => (/\S+)", output("ldd", program), re.MULTILINE)
    return [os.path.realpath(path) for name, path in found if not NOT_BUNDLED.match(name)]


def packages_of(libraries, prefix):
    """The Debian packages of libraries; for a library in `prefix` that of the same name."""
    def of_system(library):
        if prefix not in Path(library).parents:
            return library
        name = Path(library).name.split(".so")[0]
        return os.path.realpath(next(Path("/usr/lib").glob(f"*/{name}.so.*")))

    wanted = set(map(of_system, libraries))
    # dpkg may know /usr/lib/... as /lib/... One of the two names is found. (A pattern for both takes seconds.)
    names = [name for library in wanted for name in (library, library.replace("/usr/", "/", 1))]
    found = subprocess.run(["dpkg-query", "--search", *names], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                           universal_newlines=True).stdout
    owners = {os.path.realpath(path): package.split(":")[0]
              for package, path in (line.split(": ", 1) for line in found.splitlines())}
    if wanted - owners.keys():
        sys.exit(f"no package has {', '.join(sorted(wanted - owners.keys()))}, so its licence is not known")
    return {owners[library] for library in wanted}


def cuda_licence(toolkit):
    """The licence of the CUDA runtime: of the wheel or the installer that the toolkit came with; else its address."""
    for pattern in ("dist-info/nvidia_cuda_runtime-*/licenses/License.txt", "EULA.txt"):
        for path in toolkit.glob(pattern):
            return path.read_text(encoding="utf-8", errors="replace")
    return "Its licence: https://docs.nvidia.com/cuda/eula\n"


def licences(programs, prefix, build):
    """One text with the licences of all that the programs use."""
    packages = packages_of({library for program in programs for library in libraries_of(program)}, prefix)
    texts = [f"{name}\n\n" + Path(f"/usr/share/doc/{name}/copyright").read_text(encoding="utf-8", errors="replace")
             for name in sorted(packages | set(UNLISTED))]
    cache = (build / "CMakeCache.txt").read_text()
    if compiler := re.search(r"^CMAKE_CUDA_COMPILER:\w+=(.*)", cache, re.MULTILINE):
        texts.append("CUDA runtime (cudart_static)\n\nThis software contains source code provided by NVIDIA Corporation."
                     "\n\n" + cuda_licence(Path(compiler.group(1)).resolve().parents[1]))
    return ("\n" + "=" * 100 + "\n").join(texts)


def programs_of(build):
    """Each program of the build, and its folder in the package: bin/owt, and if that is a launcher libexec/owt-LEVEL
    and the library that these share."""
    levels = sorted(path for path in build.glob("owt-*") if os.access(path, os.X_OK) and path.is_file())
    return [(build / "owt", "bin")] + [(path, "libexec") for path in levels + sorted(build.glob("libowt_device.so"))]


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    build, folder = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    prefix = Path(sys.argv[3]).resolve() if len(sys.argv) == 4 else None
    programs = programs_of(build)
    project = (ROOT / "CMakeLists.txt").read_text()
    version = re.search(r"project\(owt VERSION (\S+)", project).group(1)
    summary = re.search(r'DESCRIPTION "(.*)"', project).group(1)
    information, tag = f"owt-{version}.dist-info", "py3-none-linux_x86_64"
    folder.mkdir(parents=True, exist_ok=True)
    result = folder / f"owt-{version}-{tag}.whl"
    record = []
    with zipfile.ZipFile(result, "w", zipfile.ZIP_DEFLATED) as archive:

        def add(name, content, mode=0o644):
            if isinstance(content, str):
                content = content.encode()
            entry = zipfile.ZipInfo(name, (2000, 1, 1, 0, 0, 0))
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
            checksum = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={checksum},{len(content)}\n")

        for source in sorted((ROOT / "tools/package/owt").glob("*.py")):
            add(f"owt/{source.name}", source.read_text())
        for source in sorted(path for path in (ROOT / "configs").rglob("*") if path.is_file()):
            add(f"owt/{source.relative_to(ROOT)}", source.read_bytes())
        for program, place in programs:
            stripped = folder / (program.name + ".stripped")
            subprocess.run(["strip", "-o", stripped, program], check=True)
            add(f"owt/{place}/{program.name}", stripped.read_bytes(), 0o755)
            stripped.unlink()
        add(f"{information}/METADATA",
            METADATA.format(version=version, summary=summary, readme=(ROOT / "README.md").read_text()))
        add(f"{information}/WHEEL", WHEEL.format(tag=tag))
        add(f"{information}/entry_points.txt", "[console_scripts]\nowt = owt:main\n")
        add(f"{information}/licenses/LICENSE", (ROOT / "LICENSE").read_text())
        add(f"{information}/licenses/LIBRARIES", licences([path for path, _ in programs], prefix, build))
        add(f"{information}/RECORD", "".join(record) + f"{information}/RECORD,,\n")
    print(result)


main()

#!/usr/bin/env python3
"""Packs the dependencies that an offline GPU node lacks into one archive: the simulator, OGBench and small packages.

    python scripts/bundle.py --python 3.12 --out build/bundle.tar.xz

The node is expected to have NumPy, JAX with CUDA, Equinox, Optax, rich, matplotlib, pandas and TensorBoard. On the
node, unpack the archive and put it and this project on the path:

    tar -xf bundle.tar.xz && PYTHONPATH=bundle:src python -m gtrl ...
"""

import argparse
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = (
    "mujoco", "mujoco-core", "gymnasium", "ogbench", "PyOpenGL", "glfw", "cloudpickle", "farama-notifications",
    "dm-env", "dm-control", "loky", "tyro", "docstring-parser", "typeguard", "lxml", "pyyaml",
)  # fmt: skip
# The folders of dm_control, which is large, that OGBench's manipulation environments use.
DM_CONTROL = {"mjcf", "mujoco", "rl", "utils", "autowrap", "_render"}


def pinned(package: str) -> str:
    """Returns the requirement of a package: pinned to the version in constraints.txt, if it is listed there."""
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        name = line.split("==")[0].strip()
        if name.lower().replace("_", "-") == package.lower():
            return line.strip()
    return package


def wanted(member: str) -> bool:
    """Returns whether a file of a wheel belongs in the bundle: no tests, stubs or unused parts of dm_control."""
    parts = member.split("/")
    if parts[0] == "dm_control" and len(parts) > 2:
        return parts[1] in DM_CONTROL and not parts[-1].endswith("_test.py")
    return "/tests/" not in member and not member.endswith(".pyi")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default="3.12", help="Python version of the node")
    parser.add_argument("--platform", default="manylinux_2_28_x86_64")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bundle.tar.xz")
    args = parser.parse_args()
    platforms = {args.platform, "manylinux_2_17_x86_64", "manylinux2014_x86_64", "manylinux_2_27_x86_64"}
    with tempfile.TemporaryDirectory() as folder:
        wheels, bundle = Path(folder, "wheels"), Path(folder, "bundle")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        command += ["--python-version", args.python, "--implementation", "cp", "--dest", str(wheels)]
        command += [flag for platform in sorted(platforms) for flag in ("--platform", platform)]
        subprocess.run([*command, *map(pinned, PACKAGES)], check=True)
        for wheel in sorted(wheels.glob("*.whl")):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(bundle, [member for member in archive.namelist() if wanted(member)])
        args.out.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(args.out, "w:xz") as archive:
            archive.add(bundle, "bundle")
    print(f"{args.out}: {args.out.stat().st_size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()

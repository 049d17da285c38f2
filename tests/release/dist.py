"""Build wheel and sdist, check them, and use the wheel where nothing else of aucmax is.

    python tests/release/dist.py

The sdist is made of the tree and the wheel of the sdist, so that a file that either lacks is
missed. The wheel is installed into fresh environments outside the repository: with the extra
``tables``, where ``aucmax demo`` and the README's Python are run, and without any.
"""

import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from environment import ROOT, Environment
from packaging.metadata import Metadata

DIST = ROOT / "dist"
PINS = ("-c", str(ROOT / "constraints.txt"))
NEEDED = {"torch", "numpy", "safetensors", "rich"}
OPTIONAL = {"scikit-learn", "scipy", "pyarrow", "tyro", "matplotlib", "pillow", "tabm", "pandas"}


def build(folder):
    """The sdist of the tree, and the wheel of the sdist."""
    for path in [*DIST.glob("aucmax-*")] if DIST.exists() else []:
        path.unlink()
    tools = Environment(folder / "tools")
    tools.install("hatchling")
    tools.run("python", "-m", "hatchling", "build", "-t", "sdist", "-d", DIST, cwd=ROOT)
    (sdist,) = DIST.glob("aucmax-*.tar.gz")
    tools.run("python", "-m", "pip", "wheel", "--no-deps", "-w", DIST, sdist, cwd=folder)
    (wheel,) = DIST.glob("aucmax-*.whl")
    for path in (sdist, wheel):
        print(f"built {path.name}, {path.stat().st_size / 1e6:.1f} MB")
    return sdist, wheel


def check_contents(sdist, wheel):
    """The wheel has every file of the package and no other; the metadata follow the standard."""
    source = ROOT / "src"
    wanted = {
        str(path.relative_to(source))
        for path in (source / "aucmax").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        (metadata,) = (x for x in archive.namelist() if x.endswith(".dist-info/METADATA"))
        about = Metadata.from_email(archive.read(metadata), validate=True)
    assert names == wanted, sorted(names ^ wanted)
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    lacking = {"Makefile", "constraints.txt", "tests/conftest.py", "docs/conf.py"} - inside
    assert not lacking, lacking
    extra = {name.partition("/")[0] for name in inside} & {"benchmarks", "examples", "experiments"}
    assert not extra, extra
    assert about.description == (ROOT / "README.md").read_text(encoding="utf-8")
    extras = ", ".join(about.provides_extra)
    print(f"metadata {about.metadata_version}: {about.name} {about.version}, extras {extras}")


def use_tables(wheel, folder):
    """What a user of tables does first: ``aucmax demo``, and the README's Python."""
    fresh = Environment(folder / "tables")
    seconds = fresh.install(*PINS, f"{wheel}[tables]", "pandas")
    versions = fresh.versions()
    print(f"installed aucmax[tables], torch {versions['torch']}: {seconds:.0f} s")
    print(fresh.run("aucmax", "--version", cwd=folder).stdout.strip())
    shown = fresh.run("aucmax", "demo", cwd=folder).stdout
    print("aucmax demo: " + next(x for x in shown.splitlines() if x.startswith("AUC ")))
    assert (folder / "demo-model" / "report.html").exists()
    script = Path(__file__).with_name("readme.py")
    for line in fresh.run("python", script, ROOT / "README.md", cwd=folder).stdout.splitlines():
        print(line)


def use_light(wheel, folder):
    """What is there without extras works, and the rest says what to install."""
    fresh = Environment(folder / "light")
    seconds = fresh.install(*PINS, wheel)
    versions = fresh.versions()
    assert versions.keys() >= NEEDED, versions
    assert not versions.keys() & OPTIONAL, versions
    print(f"installed aucmax alone, {len(versions)} packages with it: {seconds:.0f} s")
    print("  " + ", ".join(f"{name} {version}" for name, version in sorted(versions.items())))
    script = ROOT / "tests" / "helpers" / "light_install.py"
    print(fresh.run("python", script, cwd=folder).stdout.splitlines()[-1])


def main():
    with tempfile.TemporaryDirectory(prefix="aucmax-dist-") as name:
        folder = Path(name)
        sdist, wheel = build(folder)
        check_contents(sdist, wheel)
        use_light(wheel, folder)
        use_tables(wheel, folder)


if __name__ == "__main__":
    sys.exit(main())

"""Print the installed packages of a lock as CycloneDX 1.6: ``python requirements/sbom.py [core | serve | dev]``.

Of each package version, licence and what it asks for, as its own metadata say, and the SHA-256 of every file that a lock accepts.
"""

import json
import re
import sys
import uuid
from collections.abc import Collection, Mapping, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any
from urllib.parse import quote

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HERE = Path(__file__).parent
EXTRAS = {"core": (), "serve": ("export", "serve"), "dev": ("dev",)}
"""By the names of the locks."""


def hashes_in(lock: Path) -> dict[str, list[str]]:
    """The SHA-256 of every file that a lock accepts, by package and version: ``torch==2.13.0``."""
    blocks = [block for block in re.split(r"\n(?=\S)", lock.read_text()) if "==" in block]
    return {block.split()[0]: re.findall(r"sha256:([0-9a-f]{64})", block) for block in blocks}


def installed(name: str) -> Distribution | None:
    """A package; None where it is for another system."""
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def asked_for(package: Distribution, extras: Collection[str] = ()) -> set[str]:
    """Return the names of the packages that a package needs here, with some of its extras."""
    found, seen, rest = set(), set(), ["", *extras]
    needs = [Requirement(text) for text in package.requires or ()]
    while rest:
        seen.add(extra := rest.pop())
        for need in needs:
            if need.marker is None or need.marker.evaluate({"extra": extra}):
                if canonicalize_name(need.name) == canonicalize_name(package.name):  # an extra of several others
                    rest += need.extras - seen
                else:
                    found.add(canonicalize_name(need.name))
    return found


def component(package: Distribution, accepted: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """A package in CycloneDX's words."""
    name, about = canonicalize_name(package.name), package.metadata
    purl = f"pkg:pypi/{name}@{quote(package.version)}"
    found: dict[str, Any] = {"type": "library", "bom-ref": purl, "name": name, "version": package.version, "purl": purl}
    classifiers = [line.rpartition(" :: ")[2] for line in about.get_all("Classifier") or () if line.startswith("License ::")]
    if expression := about.get("License-Expression"):
        found["licenses"] = [{"expression": expression}]
    elif named := [about["License"]] if len(about.get("License") or "\n" * 9) < 80 else classifiers:
        found["licenses"] = [{"license": {"name": name}} for name in named]
    hashes = accepted.get(f"{name}=={package.version}", ())
    files = ({"type": "distribution", "url": purl, "hashes": [{"alg": "SHA-256", "content": digest}]} for digest in hashes)
    return found | ({"externalReferences": [*files]} if hashes else {})


def sbom(name: str) -> dict[str, Any]:
    """The document of one lock; the same for the same environment."""
    lock = hashes_in(HERE / f"{name}.txt")
    accepted = {**lock, **hashes_in(HERE / "cpu.txt")}
    names = sorted(pin.partition("==")[0] for pin in lock)
    packages = {one: found for one in names if (found := installed(one))}
    components = {one: component(package, accepted) for one, package in packages.items()}
    own = distribution("vitrail")
    root = {**component(own, {}), "type": "application"}
    needs = [(root, asked_for(own, EXTRAS[name])), *((components[one], asked_for(found)) for one, found in packages.items())]
    document: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": root},
        "components": [*components.values()],
        "dependencies": [
            {"ref": one["bom-ref"], "dependsOn": sorted(components[need]["bom-ref"] for need in found if need in components)}
            for one, found in needs
        ],
    }
    return {"serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(document))}", **document}


if __name__ == "__main__":
    json.dump(sbom(*sys.argv[1:] or ["dev"]), sys.stdout, indent=2)

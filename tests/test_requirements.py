"""Every installed package is pinned by its hashes, and a document lists it."""

import re
import tomllib
from importlib.metadata import distribution
from pathlib import Path
from urllib.parse import quote

import pytest
from packaging.utils import canonicalize_name
from sbom import EXTRAS, asked_for, hashes_in, installed, sbom

ROOT = Path(__file__).parent.parent
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
VIT_PYTORCH = ("0.5.1", "0.6.8", "0.16.13", "1.0.2")
PEERS = [ROOT / "tests" / "peers.txt", *(ROOT / "tests" / "vit-pytorch" / f"{version}.txt" for version in VIT_PYTORCH)]


def pins(file: Path) -> dict[str, str]:
    found = re.findall(r"^([\w.-]+)==([\w.]+)", file.read_text(), re.MULTILINE)
    return {canonicalize_name(name): version for name, version in found}


CONSTRAINTS = pins(ROOT / "constraints.txt")


@pytest.mark.parametrize("file", [*LOCKS, *PEERS], ids=lambda file: file.name)
def test_every_package_has_hashes_and_no_host_is_named(file):
    hashes = hashes_in(file)
    assert {pin.partition("==")[0] for pin in hashes} == pins(file).keys() and all(hashes.values())
    assert "//" not in file.read_text() and not re.search(r"^-", file.read_text(), re.MULTILINE)


@pytest.mark.parametrize("name", EXTRAS)
def test_a_lock_has_all_that_is_asked_for_in_the_version_that_is_pinned(name):
    lock = pins(ROOT / "requirements" / f"{name}.txt")
    assert {package: CONSTRAINTS[package] for package in lock if package in CONSTRAINTS}.items() <= lock.items()
    rest, seen = asked_for(distribution("vitrail"), EXTRAS[name]), set()
    while rest:
        seen |= rest
        rest = {need for package in rest if (found := installed(package)) for need in asked_for(found)} - seen
    assert seen <= lock.keys() | pins(ROOT / "requirements" / "cuda.txt").keys()
    assert {"hatchling", "editables"} <= lock.keys()


def test_all_that_is_pinned_is_in_the_lock_of_the_developers_and_so_is_what_builds():
    assert CONSTRAINTS.keys() <= pins(ROOT / "requirements" / "dev.txt").keys()
    (build,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert build == f"hatchling=={CONSTRAINTS['hatchling']}"


def test_the_document_names_every_package_with_its_hashes_and_what_it_needs():
    found = sbom("serve")
    assert (found["bomFormat"], found["specVersion"], found["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", found["serialNumber"])
    for one in found["components"]:
        assert one["type"] == "library" and one["purl"] == f"pkg:pypi/{one['name']}@{quote(one['version'])}" == one["bom-ref"]
        for reference in one["externalReferences"]:
            (digest,) = reference["hashes"]
            assert digest["alg"] == "SHA-256" and re.fullmatch("[0-9a-f]{64}", digest["content"])
            assert reference["type"] == "distribution" and reference["url"] == one["purl"]
    refs = [found["metadata"]["component"]["bom-ref"], *(one["bom-ref"] for one in found["components"])]
    assert [one["ref"] for one in found["dependencies"]] == refs and len(set(refs)) == len(refs)
    assert all(set(one["dependsOn"]) <= set(refs) for one in found["dependencies"])
    own = found["dependencies"][0]
    assert own["ref"].startswith("pkg:pypi/vitrail@")
    assert {"torch", "uvicorn", "openvino"} <= {re.split("[/@]", ref)[1] for ref in own["dependsOn"]}
    assert {"licenses", "externalReferences"} <= next(one for one in found["components"] if one["name"] == "h11").keys()
    assert sbom("serve") == found

# SPDX-License-Identifier: MIT
"""The sdist holds what git tracks, less what pyproject.toml leaves out, and nothing else."""

import subprocess
import tarfile

import pytest

LEFT_OUT = (".ci/", ".github/", ".git")
MADE = {"PKG-INFO"}


@pytest.fixture(scope="module")
def members(sdist):
    with tarfile.open(sdist) as archive:
        return {
            name.split("/", 1)[1] for name in archive.getnames() if "/" in name and archive.getmember(name).isfile()
        }


@pytest.fixture(scope="module")
def tracked(checkout):
    done = subprocess.run(["git", "ls-files", "-z"], cwd=checkout, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("the checkout is no git repository")
    return {name for name in done.stdout.split("\0") if name and (checkout / name).is_file()}


def test_nothing_is_missing(members, tracked):
    assert sorted(name for name in tracked - members if not name.startswith(LEFT_OUT)) == []


def test_nothing_is_added(members, tracked, checkout):
    untracked = subprocess.run(
        ["git", "ls-files", "--others", "--exclude-standard", "-z"],
        cwd=checkout,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\0")
    # A file that is about to be committed is in the folder that is being tested.
    assert sorted(members - tracked - MADE - set(untracked)) == []

# SPDX-License-Identifier: MIT
"""A name that a module of rocpy lacks is an error with the nearest one."""

import importlib

import pytest


@pytest.mark.parametrize(
    ("module", "name", "near"),
    [
        ("dtypes", "flot32", "float32"),
        ("errors", "RcclEror", "RcclError"),
        ("platform", "currentt", "current"),
        ("typing", "ArayLike", "ArrayLike"),
        ("runtime", "Strea", "Stream"),
        ("testing", "compar", "compare"),
        ("tuning", "enablee", "enable"),
        ("blaslt", "Weightt", "Weight"),
        ("cooperative", "block_reduc", "block_reduce"),
    ],
)
def test_the_nearest_name(module, name, near):
    loaded = importlib.import_module(f"rocpy.{module}")
    with pytest.raises(
        AttributeError, match=f"^module 'rocpy.{module}' has no attribute '{name}'; did you mean '{near}'"
    ):
        getattr(loaded, name)
    with pytest.raises(ImportError, match=name):
        exec(f"from rocpy.{module} import {name}")

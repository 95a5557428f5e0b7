# SPDX-License-Identifier: MIT
"""A name that a module of rocpy lacks is an error with the nearest one."""

import importlib

import pytest


@pytest.mark.parametrize(
    ("module", "name", "near"),
    [
        ("dtypes", "flot32", "float32"),
        ("errors", "RcclEror", "RcclError"),
        ("platform", "curent", "current"),
        ("typing", "ArayLike", "ArrayLike"),
        ("runtime", "Strem", "Stream"),
        ("testing", "compar", "compare"),
        ("tuning", "enabel", "enable"),
        ("blaslt", "Wieght", "Weight"),
        ("cooperative", "block_redcue", "block_reduce"),
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

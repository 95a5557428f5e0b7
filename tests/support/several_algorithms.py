# SPDX-License-Identifier: MIT
"""Products whose library has several algorithms for them."""

import pytest

import rocpy


def candidates(product, least=2):
    """Return a product's algorithms; a library of AMD's may have too few to choose from."""
    planned = product.plan()
    if len(planned) < least and not rocpy.platform.current().is_emulated:
        pytest.skip(f"{planned[0].library} has {len(planned)} algorithms for {product.problem}")
    assert len(planned) >= least, "there is nothing to choose from"
    return planned

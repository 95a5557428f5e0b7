# SPDX-License-Identifier: MIT
"""Products whose library has several algorithms for them."""

import pytest

import rocpy


def candidates(product, least=2):
    """Return a product's algorithms; a library of AMD's may have too few to choose from."""
    found = product.plan()
    if len(found) < least and not rocpy.platform.current().is_emulated:
        pytest.skip(f"{found[0].library} has {len(found)} algorithms for {product.problem}")
    assert len(found) >= least, "there is nothing to choose from"
    return found

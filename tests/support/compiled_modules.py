# SPDX-License-Identifier: MIT
"""Steps of training a module, and modules that torch.compile compiles once for several batch sizes."""

import pytest
import torch


def step(module, x):
    """Return what a module gives and the gradients of its parameters."""
    module.zero_grad()
    y = module(x)
    y.square().sum().backward()
    return [y.detach(), *(p.grad.clone() for p in module.parameters())]


def compiled_once(module, reference, backend):
    """Compile a module, check it for five batch sizes against a reference, and return it with its last input."""
    from torch._dynamo.testing import CompileCounterWithBackend

    counter = CompileCounterWithBackend(backend)
    compiled = torch.compile(module, fullgraph=True, dynamic=True, backend=counter)
    for rows in (3, 2, 5, 8, 13):
        x = torch.randn(rows, 6)
        try:
            results = step(compiled, x)
        except Exception as error:
            if backend == "inductor" and "compiler" in str(error).lower():
                pytest.skip(f"no C++ compiler for inductor: {type(error).__name__}")
            raise
        torch.testing.assert_close(results, step(reference, x), rtol=1e-4, atol=1e-5)
    assert counter.frame_count == 1
    return compiled, x

# SPDX-License-Identifier: MIT
"""rocpy under torch.compile: the backend ``rocpy``, and a pass for Inductor's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import fx

from rocpy.errors import InvalidOperandError
from rocpy.torch.compiler.graphs import fuse_graph

__all__ = ["backend", "inductor_pass"]

_RESTS = ("inductor", "eager")


def backend(
    module: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    **others: Any,  # noqa: ARG001  (what newer releases of torch pass beside these)
) -> Callable[..., Any]:
    """Compile a graph: linear layers and their activations with rocpy, the rest with Inductor or eagerly.

    Used by ``torch.compile(model, backend="rocpy")``. Forward and backward passes are compiled, and torch's compiler
    guards everything that the model's code depends on.

    Parameters
    ----------
    module, example_inputs
        As passed by torch's compiler.
    mode
        As for ``torch.compile``, for Inductor.
    options
        ``{"rest": "inductor"}`` or ``{"rest": "eager"}`` selects what computes the rest. The default is Inductor if it
        has a compiler (for C++ on the CPU, Triton on a GPU), otherwise eager. Other options are Inductor's.

    Raises
    ------
    InvalidOperandError
        If ``rest`` has another value.
    """
    chosen = dict(options or {})
    rest = chosen.pop("rest", None)
    if rest is not None and rest not in _RESTS:
        raise InvalidOperandError(f"options: got rest={rest!r}, expected 'inductor' or 'eager'")
    if rest is None:
        rest = "inductor" if _can_induct(example_inputs) else "eager"
    fuse_graph(module.graph, every_layer=True)
    module.graph.lint()
    module.recompile()
    if rest == "eager":
        return module
    from torch._inductor import list_mode_options
    from torch._inductor.compile_fx import compile_fx

    patches = {**(list_mode_options(mode) if mode else {}), **chosen}
    result: Callable[..., Any] = compile_fx(module, list(example_inputs), config_patches=patches or None)
    return result


def _can_induct(example_inputs: Sequence[Any]) -> bool:
    devices = {x.device.type for x in example_inputs if isinstance(x, torch.Tensor)} - {"meta"}
    return all(_has_compiler(device) for device in devices or {"cpu"})


@cache
def _has_compiler(device: str) -> bool:
    if device != "cpu":
        from torch.utils._triton import has_triton

        return bool(has_triton())
    from torch._inductor import cpp_builder

    try:
        cpp_builder.get_cpp_compiler()
    except Exception:  # noqa: BLE001  (torch has an error of its own for it, whose place changes)
        return False
    return True


@cache
def inductor_pass() -> Any:
    """Return a pass for Inductor that computes a linear layer together with the activation that follows it.

    Returns
    -------
    torch._inductor.custom_graph_pass.CustomGraphPass
        For ``torch._inductor.config.pre_grad_custom_pass``, or as an option of ``torch.compile``. Layers without an
        activation are left to Inductor.

    Examples
    --------
    >>> import torch, rocpy.torch as rt
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
    >>> compiled = torch.compile(model, options={"pre_grad_custom_pass": rt.inductor_pass()})
    """
    from torch._inductor.custom_graph_pass import CustomGraphPass

    class FuseLayers(CustomGraphPass):  # type: ignore[misc]
        """Layers with their activations."""

        def __call__(self, graph: fx.Graph) -> None:
            fuse_graph(graph, every_layer=False)

        def uuid(self) -> Any:
            return _identity()

    return FuseLayers()


@cache
def _identity() -> str:
    """Return what tells Inductor's cache one version of the pass from another."""
    import hashlib

    sources = ("compiler/graphs.py", "analysis/catalog.py", "operators/linear_layer.py", "operators/blocks.py")
    text = b"".join((Path(__file__).parents[1] / name).read_bytes() for name in sources)
    return f"rocpy {hashlib.sha256(text).hexdigest()}"

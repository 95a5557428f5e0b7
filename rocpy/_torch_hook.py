# SPDX-License-Identifier: MIT
"""Brings in rocpy.torch when it is needed and no sooner: at a tensor, at torch's compiler, at a process group.

Steps of torch's optimizers are reported to packed weights from here too, without it.
"""

from __future__ import annotations

import sys
from typing import Any

import rocpy_torch_backend
from rocpy._import_hook import when_imported
from rocpy._operand import set_torch_dispatcher
from rocpy.blaslt.operands.weight import sources_may_have_changed

_OPTIMIZER = "torch.optim.optimizer"


def install() -> None:
    """Register what calls torch's dispatcher, and tell torch's compiler and torch.distributed once they are there."""
    set_torch_dispatcher(dispatch)
    rocpy_torch_backend.autoload()
    when_imported("torch._dynamo", _tell_compiler)
    when_imported(_OPTIMIZER, _watch_optimizers)
    when_imported("torch.utils.flop_counter", _tell_flop_counter)


def dispatch(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a function through torch's dispatcher. Importing the layer replaces this function by its own."""
    from rocpy.torch.operators.dispatch import dispatch as layer

    return layer(name, args, kwargs)


def _tell_compiler() -> None:
    from rocpy.torch.compiler.dynamo import register

    register()


def _tell_flop_counter() -> None:
    from rocpy.torch.compiler.flops import register

    register()


def _watch_optimizers() -> None:
    """Have each step of an optimizer reported to packed weights: fused ones raise no version counter."""
    torch = sys.modules["torch"]

    def after_step(optimizer: Any, args: Any, kwargs: Any) -> None:  # noqa: ARG001
        # torch's compiler traces this function with the step. What it compiles raises the version counters of what it
        # writes; fused steps run outside of its graphs, and so does their report.
        if not torch.compiler.is_compiling() or any(group.get("fused") for group in optimizer.param_groups):
            _report_step()

    sys.modules[_OPTIMIZER].register_optimizer_step_post_hook(after_step)


def _report_step() -> None:
    sources_may_have_changed()


# What torch.compiler.disable sets, without importing torch's compiler.
_report_step._torchdynamo_disable = True  # type: ignore[attr-defined]

# SPDX-License-Identifier: MIT
"""Replacement of the linear layers of an existing model: in place, with a report that can undo it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

from rocpy._messages.modules import is_instance_of
from rocpy._messages.suggestions import nearest
from rocpy.errors import InvalidOperandError, InvalidProblemError
from rocpy.torch.layers import packing
from rocpy.torch.layers.modules import Linear
from rocpy.torch.layers.overrides import linear_is_patched
from rocpy.torch.operators.activations import ACTIVATIONS
from rocpy.torch.replace.experts import CHOSEN, describe_experts, experts_class, judge_experts
from rocpy.torch.replace.fusion import PAIRS, fused_class, is_fused_class, original_class, refusal
from rocpy.torch.replace.pairs import FusedMethod, Pair, read_block
from rocpy.torch.replace.report import Experts, Fused, Left, Replaced, ReplaceReport

__all__ = ["replace_linear"]

_DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex128)
_OWN = {"activation": None, "approximate": "none", "_row": ACTIVATIONS["none"]}
_FAST_PATH = "activation_relu_or_gelu"


def replace_linear(
    model: nn.Module, *, fuse: bool = True, pack: bool = False, skip: Iterable[str] | Callable[..., bool] = ()
) -> ReplaceReport:
    """Let rocpy compute the linear layers and experts of a model, with the activations that follow them.

    Parameters
    ----------
    model
        Changed in place: its modules, parameters, hooks, names, state dict, mode and devices are unchanged. Only the
        class of a layer, or of a fused block, becomes a subclass of its original class.
    fuse
        Whether to compute a layer and its activation in one call, in blocks whose code has no branches and only calls
        its own submodules and torch's functions.
    pack
        Whether the layers keep packed copies of their weights in eval mode; see :class:`Linear`. A write through
        ``.data``, with which PEFT merges its adapters, is not detected by a packed layer.
    skip
        Names of layers to leave unchanged, with ``*`` as wildcard (``"lm_head"``, ``"*.attention.*"``), or a function
        of name and module. A name without a wildcard must be one of the model's modules; a pattern that matches none is
        noted in the report.

    Returns
    -------
    ReplaceReport
        What was replaced, what was fused, and what was left unchanged, with the reason; prints as a table. ``undo()``
        reverses everything.

    Raises
    ------
    InvalidOperandError
        If ``model`` is not a module, or ``skip`` neither names nor a function.
    InvalidProblemError
        If ``skip`` names a module that the model does not have.

    Notes
    -----
    Formulas do not change: an activation is fused if its function, or the formula in its code, is relu, gelu (either
    form), silu or sigmoid. Results differ from torch's by rounding, because sums are computed in a different order, and
    where torch's activation gives NaN at an infinity, at which one in the product has its limit.
    Whether a pair is fused is decided at each call: after a hook, a patch, a parametrization or an adapter is added, it
    runs as two calls. Nothing is executed to analyse a block.

    Experts are replaced if transformers decorates their class with ``use_experts_implementation``, as for Mixtral,
    OLMoE, gpt-oss, Qwen-MoE and DeepSeek: each of their two layers is one grouped product over all experts.

    No other thread may run or change the model during the call.

    Examples
    --------
    >>> import torch, rocpy.torch as rt
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
    >>> report = rt.replace_linear(model)
    >>> report
    2 linear layers replaced, 1 of them fused with their activation
         1 x  0  fused with 1 (gelu)  4 to 8, bias, float32
         1 x  2  replaced             8 to 2, bias, float32
      note: torch.ao.quantization.quantize_dynamic misses replaced layers; run it first, or after undo()
    >>> report.undo()
    >>> type(model[0]) is torch.nn.Linear
    True
    """
    if not isinstance(model, nn.Module):
        raise InvalidOperandError(f"model: got {type(model).__name__}; pass a torch.nn.Module")
    report = ReplaceReport()
    skipped = _matcher(skip, model, report)
    modules = list(model.named_modules())
    refused = _fast_paths(modules)
    size = sum(parameter.numel() for parameter in model.parameters() if not is_lazy(parameter))
    for name, module in modules:
        kind, reason = _judge(module), refused.get(module)
        experts = judge_experts(module) if kind is None else None
        kind = experts if kind is None else kind
        # Weights of a module's own that nothing here computes: with the obstacle, where it is known.
        kind = _judge_own_weights(module, size, kind or "") if experts or kind is None else kind
        if kind is None:
            continue
        if kind == "" and reason is None and skipped(name, module):
            reason = "excluded by skip="
        reason = reason or kind
        if reason:
            report.not_replaced.append(Left(name, type(module).__name__, reason))
        elif experts is not None:
            report.experts.append(_experts_row(name, module, size))
            report._restore.append(partial(_restore_experts, module, type(module)))
            _take_experts(module)
        else:
            report._restore.append(partial(_restore_layer, module, type(module)))
            _take(module, pack)
            report.replaced.append(_row(name, module))
    for name, module in modules:
        if isinstance(module, nn.TransformerEncoderLayer):
            _leave_fast_path(module, report)
        if fuse and any(type(child) is Linear for child in module.children()):
            _fuse(name, module, report)
    report.notes += _notes(report)
    return report


def _notes(report: ReplaceReport) -> list[str]:
    """Return what others no longer find in a model."""
    if not report.replaced:
        return []
    # It looks for the class nn.Linear itself; torchao's quantize_ takes subclasses as well.
    return ["torch.ao.quantization.quantize_dynamic misses replaced layers; run it first, or after undo()"]


def _matcher(skip: Iterable[str] | Callable[..., bool], model: nn.Module, report: ReplaceReport) -> Callable[..., bool]:
    if callable(skip):
        return skip
    patterns = (skip,) if isinstance(skip, str) else tuple(skip) if isinstance(skip, Iterable) else (skip,)
    if not all(isinstance(pattern, str) for pattern in patterns):
        raise InvalidOperandError(
            f"skip: got {skip!r}, expected names of layers, with * as wildcard, or a function of name and module"
        )
    names: dict[nn.Module, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):  # a module may have several
        names.setdefault(module, []).append(name)
    known = [name for several in names.values() for name in several if name]
    for pattern in patterns:
        if any(fnmatchcase(name, pattern) for name in known):
            continue
        if not any(sign in pattern for sign in "*?["):
            raise InvalidProblemError(f"skip: the model has no module {pattern!r}{_similar(pattern, known)}")
        report.notes.append(f"skip: {pattern!r} matches no module")
    return lambda _, module: any(fnmatchcase(name, pattern) for name in names[module] for pattern in patterns)


def _similar(name: str, known: list[str]) -> str:
    """Return what was probably meant by a name that no module has: the nearest name, or those that end like it."""
    own, lasts = name.rpartition(".")[2], {one.rpartition(".")[2] for one in known}
    last = own if own in lasts else nearest(own, lasts)
    ends = [one for one in known if last and one.rpartition(".")[2] == last]
    near = nearest(name, known) or (ends[0] if len(ends) == 1 else f"*.{last}" if ends else "")
    return f"; did you mean {near!r}?" if near else "; print(model) shows their names"


# ---- layers ----


def _judge(module: nn.Module) -> str | None:
    """Return why a module cannot be replaced, ``""`` if it can, ``None`` where it computes no product of its own."""
    cls = type(module)
    if isinstance(module, nn.Linear):
        if isinstance(module, Linear):
            return "rocpy already computes it"
        if cls is nn.modules.linear.NonDynamicallyQuantizableLinear:
            return "nn.MultiheadAttention reads its weight itself"
        if cls is not nn.Linear and not _is_parametrized_linear(module):
            return f"a subclass of nn.Linear with behaviour of its own ({cls.__module__})"
        if "forward" in module.__dict__:
            return "its forward was set on the object, by accelerate or another package"
        if linear_is_patched():
            return "torch.nn.Linear.forward or torch.nn.functional.linear is another package's function, which decides"
        return _judge_weight(module)
    if isinstance(module, nn.MultiheadAttention):
        return "its projections are one function of torch's that reads the weights itself"
    if isinstance(module, (nn.RNNBase, nn.Bilinear)):
        return "its products are inside one function of torch's"
    if is_instance_of(module, "transformers.pytorch_utils", "Conv1D"):
        return "its weight is (in, out), which nn.Linear's names do not fit"
    if cls.__name__.endswith("Linear") and not any(True for _ in module.children()):
        return f"not an nn.Linear: quantized, or a layer of another package ({cls.__module__})"
    return None


# What code calls that multiplies by a weight of its own.
_PRODUCTS = frozenset(("linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "einsum", "grouped_mm"))


def _judge_own_weights(module: nn.Module, size: int, obstacle: str) -> str | None:
    """Return which weights of its own a module multiplies by, with their share of the model's parameters."""
    if type(module).__module__.startswith("torch.nn.") or isinstance(module, nn.Linear):
        return None
    own = {name: x for name, x in module._parameters.items() if x is not None and not is_lazy(x)}
    forward = getattr(getattr(type(module), "forward", None), "__code__", None)
    multiplies = forward is not None and not _PRODUCTS.isdisjoint(forward.co_names)
    # Matrices one above the other, as experts have them; or one that its own code multiplies by.
    expert_weights = {
        name: x for name, x in own.items() if (x.dim() == 3 and x.shape[0] > 1) or (x.dim() == 2 and multiplies)
    }
    if not expert_weights:
        return obstacle or None
    share = 100 * sum(x.numel() for x in expert_weights.values()) / max(size, 1)
    weights = ", ".join(f"{name} of {tuple(x.shape)}" for name, x in expert_weights.items())
    part = f"{share:.0f} %" if share >= 1 else "less than 1 %"
    why = f"; {obstacle}" if obstacle else ""
    return f"its weights are not in an nn.Linear: {weights}, {part} of the model's parameters{why}"


def _is_parametrized_linear(module: nn.Module) -> bool:
    return parametrize.is_parametrized(module) and type(module).__bases__ == (nn.Linear,)


def _judge_weight(module: nn.Linear) -> str:
    tensors = [module.weight, *([] if module.bias is None else [module.bias])]
    for name, x in zip(("weight", "bias"), tensors, strict=False):
        if type(x) not in (nn.Parameter, Tensor):
            return f"its {name} is a {type(x).__name__}, a tensor class of another package"
        if x.dtype not in _DTYPES:
            return f"its {name} is {str(x.dtype).removeprefix('torch.')}"
        if x.layout is not torch.strided or x.is_quantized:
            return f"its {name} has no dense memory ({str(x.layout).removeprefix('torch.')})"
    return "" if module.weight.dim() == 2 else f"its weight has {module.weight.dim()} axes"


def _row(name: str, module: nn.Linear) -> Replaced:
    dtype = str(module.weight.dtype).removeprefix("torch.")
    return Replaced(name, module.in_features, module.out_features, module.bias is not None, dtype)


def _take(module: nn.Linear, pack: bool) -> None:
    """Make a layer rocpy's."""
    before = type(module)
    module.__class__ = Linear if before is nn.Linear else _rebased(before, Linear)
    module.__dict__.update(_OWN, pack=pack)


def _restore_layer(module: nn.Linear, before: type) -> None:
    """Take a layer back; it may have been parametrized, or freed of that, since."""
    now = type(module)
    if now is Linear:
        module.__class__ = nn.Linear
    elif now.__bases__ == (Linear,):
        module.__class__ = before if vars(before).keys() == vars(now).keys() else _rebased(now, nn.Linear)
    else:
        return
    for name in (*_OWN, "pack", packing.ATTRIBUTE, packing.PACK_BEFORE):
        module.__dict__.pop(name, None)


def _experts_row(name: str, module: nn.Module, size: int) -> Experts:
    count, outside, inside, bias, dtype, elements = describe_experts(module)
    return Experts(name, count, outside, inside, bias, dtype, 100 * elements / max(size, 1))


def _take_experts(module: nn.Module) -> None:
    """Make experts rocpy's."""
    module.__dict__[CHOSEN] = module.config._experts_implementation
    module.__class__ = experts_class(type(module))


def _restore_experts(module: nn.Module, before: type) -> None:
    """Take experts back."""
    now = type(module)
    if is_fused_class(now):
        module.__class__ = before
    elif is_fused_class(now.__base__ or object):  # parametrized since
        module.__class__ = _rebased(now, before)
    module.__dict__.pop(CHOSEN, None)


def _rebased(cls: type, base: type) -> type:
    """Return the class that a parametrization made, made of another base."""
    body = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")}
    return type(cls.__name__, (base,), body)


# ---- torch's fused encoder ----


def _fast_paths(modules: list[tuple[str, nn.Module]]) -> dict[nn.Module, str]:
    """Return the layers that torch's encoder may compute without calling them."""
    refused = {}
    for _, module in modules:
        if isinstance(module, nn.TransformerEncoder) and getattr(module, "use_nested_tensor", False):
            for layer in module.layers:
                for name in ("linear1", "linear2"):
                    if hasattr(layer, name):
                        refused[getattr(layer, name)] = (
                            "the encoder makes nested tensors of padded input and reads the weight itself; "
                            "create it with enable_nested_tensor=False"
                        )
    return refused


def _leave_fast_path(module: nn.Module, report: ReplaceReport) -> None:
    """Keep an encoder layer from computing its replaced layers by a function of torch's own."""
    if type(module.linear1) is not Linear or _FAST_PATH not in module.__dict__:
        return
    before = module.__dict__[_FAST_PATH]
    if before:
        module.__dict__[_FAST_PATH] = 0
        note = "encoder layers do not take torch's fast path in inference, which would bypass replaced layers"
        if note not in report.notes:
            report.notes.append(note)
        report._restore.append(partial(_restore_fast_path, module, before))


def _restore_fast_path(module: nn.Module, before: int) -> None:
    module.__dict__[_FAST_PATH] = before


# ---- blocks ----


def _fuse(name: str, module: nn.Module, report: ReplaceReport) -> None:
    cls, kind = type(module), type(module).__name__
    if is_fused_class(cls):
        return
    methods, reasons = read_block(module)
    report.not_fused += [Left(_join(name, layer), kind, reason) for layer, reason in reasons]
    if not methods:
        return
    why = refusal(cls) or next(
        (
            f"its {x} was set on the object"
            for x in (*(m.name for m in methods), "__reduce_ex__")
            if x in module.__dict__
        ),
        None,
    )
    if why is not None:
        report.not_fused.append(Left(name, kind, why))
        return
    pairs = [pair for method in methods for pair in method.pairs]
    _dress(module, methods, pairs)
    report._restore.append(partial(_undress, module))
    for pair in pairs:
        row = ACTIVATIONS[pair.row]
        inside = (row.fused.plain or row.fused.bias) is not None
        second = "a function" if not pair.child else _join(name, pair.child)
        report.fused.append(Fused(name, _join(name, pair.layer), second, row.name, inside))


def _join(block: str, child: str) -> str:
    return ".".join(part for part in (block, child) if part)


def _dress(module: nn.Module, methods: list[FusedMethod], pairs: list[Pair]) -> None:
    """Give a block the class whose methods are fused."""
    module.__class__ = fused_class(type(module), tuple(method.key for method in methods))
    module.__dict__[PAIRS] = tuple((pair.layer, pair.child, pair.row) for pair in pairs)


def _undress(module: nn.Module) -> None:
    """Give a block its own class back."""
    module.__dict__.pop(PAIRS, None)
    if is_fused_class(type(module)):
        module.__class__ = original_class(type(module))

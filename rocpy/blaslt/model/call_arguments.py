# SPDX-License-Identifier: MIT
"""Types of the keyword arguments of products, for type checkers and readers of annotations: no product imports it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, SupportsComplex, SupportsFloat, SupportsIndex, TypeAlias, TypedDict

from rocpy.blaslt.model.algorithms import Algorithm
from rocpy.blaslt.model.epilogues import (
    Epilogue,
    GroupedPairEpilogue,
    GroupedPlainEpilogue,
    PairEpilogue,
    PlainEpilogue,
    UserEpilogue,
)
from rocpy.blaslt.model.options import Options, OptionsDict, options
from rocpy.blaslt.model.weight_operand import WeightOperand
from rocpy.typing import ArrayLike, ComputeName, ResultDType, StreamLike

AnyAlgorithm: TypeAlias = Algorithm | Mapping[str, Any] | SupportsIndex | str
"""An algorithm, its record, its index, or its kernel's name."""

AnyEpilogue: TypeAlias = PlainEpilogue | PairEpilogue | Epilogue | UserEpilogue
"""Whatever a product takes as ``epilogue=``."""

AnyOptions: TypeAlias = Options | options | OptionsDict
"""Options as a record, as ``rocpy.options(...)`` or as a dict."""

AnyReal: TypeAlias = float | SupportsFloat | SupportsIndex
"""A real number of Python, numpy or a framework, a fraction or a decimal number."""

AnyNumber: TypeAlias = complex | SupportsComplex | AnyReal
"""The same, or a complex number."""

AnyBounds: TypeAlias = tuple[AnyReal, AnyReal] | list[Any]
"""Bounds of a clamp."""


class ProductArguments(TypedDict, total=False):
    """Keyword arguments of a product that do not decide what it returns."""

    alpha: AnyNumber
    beta: AnyNumber | None
    bias: ArrayLike | None
    aux: ArrayLike | dict[str, Any] | None
    clamp: AnyBounds | None
    epilogue_inputs: Mapping[str, Any] | None
    scale_a: Any
    scale_b: Any
    scale_c: Any
    scale_d: Any
    dtype: ResultDType | None
    compute: ComputeName | None
    options: AnyOptions | None
    stream: StreamLike | None


class NewOperands(TypedDict, total=False):
    """What ``reset_operands`` puts in the place of what a product had."""

    a: ArrayLike | None
    b: ArrayLike | WeightOperand | None
    c: ArrayLike | None
    bias: ArrayLike | None
    aux: ArrayLike | dict[str, Any] | None
    alpha: AnyNumber | None
    beta: AnyNumber | None
    scale_a: Any
    scale_b: Any
    scale_c: Any
    scale_d: Any
    epilogue_inputs: Mapping[str, Any] | None


class ExplainedArguments(ProductArguments, total=False):
    """Keyword arguments of ``explain`` for one product."""

    epilogue: AnyEpilogue | None
    amax: bool
    algorithm: AnyAlgorithm | None
    autotune: bool | None


class GroupedArguments(TypedDict, total=False):
    """Keyword arguments of ``explain`` for a grouped product, ``offsets`` apart."""

    groups: int | None
    epilogue: GroupedPlainEpilogue | GroupedPairEpilogue | Epilogue | None
    bias: ArrayLike | Sequence[ArrayLike | None] | None
    clamp: AnyBounds | None
    alpha: AnyReal
    scale_a: Any
    scale_b: Any
    dtype: ResultDType | None
    out: ArrayLike | Sequence[ArrayLike] | None
    options: AnyOptions | None
    stream: StreamLike | None

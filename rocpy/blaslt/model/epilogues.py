# SPDX-License-Identifier: MIT
"""The epilogues that hipBLASLt fuses: one row for each, with what it reads, what it writes, and its enumerator."""

from __future__ import annotations

import enum
import functools
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from rocpy._messages.modules import imported
from rocpy._messages.suggestions import nearest
from rocpy._messages.text import plain_text
from rocpy.errors import InvalidProblemError, UnsupportedError

__all__ = [
    "EPILOGUES",
    "OTHER_FUNCTIONS",
    "OTHER_NAMES",
    "TORCH_ACTIVATIONS",
    "Epilogue",
    "EpilogueRow",
    "GroupedPairEpilogue",
    "GroupedPlainEpilogue",
    "PairEpilogue",
    "PlainEpilogue",
    "find_epilogue",
    "torch_activation",
]


class EpilogueRow(NamedTuple):
    """One epilogue, as data.

    Parameters
    ----------
    name
        The string that :func:`rocpy.matmul` accepts.
    enumerator
        Its ``hipblasLtEpilogue_t``, or ``None`` if hipBLASLt has none.
    formula
        The result as a formula of ``y``, the product with bias, and of ``aux``.
    bias
        Whether a bias is read.
    aux
        ``"none"``, ``"store"`` (the pre-activation is an output) or ``"load"`` (it is an input).
    aux_name
        Key of the stored auxiliary matrix in the returned dict.
    gradient
        Key of a bias gradient that is written, or ``""``; ``"bgrad"`` and ``"bgradb"`` have length N, ``"bgrada"``
        length M.
    clamp
        Whether ``clamp=(low, high)`` is required.
    base_epilogue, program
        For an epilogue without an enumerator: the number of one of the same form and the opcode that takes its
        activation's place, on platforms that run tile programs; of a gradient, the opcode of the derivative.
    """

    name: str
    enumerator: int | None
    formula: str
    bias: bool = False
    aux: str = "none"
    aux_name: str = ""
    gradient: str = ""
    clamp: bool = False
    base_epilogue: int = 0
    program: str = ""

    @property
    def outputs(self) -> tuple[str, ...]:
        """Keys of the dict returned with the result, in order; empty if only the result is returned."""
        if not self.aux_name and not self.gradient:  # as of most, which each call asks
            return ()
        return tuple(key for key in (self.aux_name, self.gradient) if key)


_GELU = "y/2 (1 + tanh(sqrt(2/pi) (y + 0.044715 y^3)))"
_GELU_ERF = "y/2 (1 + erf(y / sqrt(2)))"
_SILU = "y / (1 + exp(-y))"
_CLAMP = "min(max(y, low), high)"

# Numbers: hipblasLtEpilogue_t of hipBLASLt 1.4.1.
_ROWS = (
    EpilogueRow("default", 1, "y"),
    EpilogueRow("bias", 4, "y", bias=True),
    EpilogueRow("relu", 2, "max(y, 0)"),
    EpilogueRow("relu_bias", 6, "max(y, 0)", bias=True),
    EpilogueRow("gelu", 32, _GELU),
    EpilogueRow("gelu_bias", 36, _GELU, bias=True),
    EpilogueRow("silu", 65536, _SILU),
    EpilogueRow("silu_bias", 65540, _SILU, bias=True),
    EpilogueRow("sigmoid", 1024, "1 / (1 + exp(-y))"),
    EpilogueRow("sigmoid_bias", None, "1 / (1 + exp(-y))", bias=True, base_epilogue=4, program="SIGMOID"),
    EpilogueRow("gelu_erf", None, _GELU_ERF, base_epilogue=1, program="GELU_ERF"),
    EpilogueRow("gelu_erf_bias", None, _GELU_ERF, bias=True, base_epilogue=4, program="GELU_ERF"),
    EpilogueRow("clamp", 131072, _CLAMP, clamp=True),
    EpilogueRow("clamp_bias", 131076, _CLAMP, bias=True, clamp=True),
    EpilogueRow("relu_aux", 130, "max(y, 0), and y", aux="store", aux_name="relu_aux"),
    EpilogueRow("relu_aux_bias", 134, "max(y, 0), and y", bias=True, aux="store", aux_name="relu_aux"),
    EpilogueRow("gelu_aux", 160, _GELU + ", and y", aux="store", aux_name="gelu_aux"),
    EpilogueRow("gelu_aux_bias", 164, _GELU + ", and y", bias=True, aux="store", aux_name="gelu_aux"),
    EpilogueRow(
        "gelu_erf_aux",
        None,
        _GELU_ERF + ", and y",
        aux="store",
        aux_name="gelu_erf_aux",
        base_epilogue=160,
        program="GELU_ERF",
    ),
    EpilogueRow(
        "gelu_erf_aux_bias",
        None,
        _GELU_ERF + ", and y",
        bias=True,
        aux="store",
        aux_name="gelu_erf_aux",
        base_epilogue=164,
        program="GELU_ERF",
    ),
    EpilogueRow(
        "silu_aux", None, _SILU + ", and y", aux="store", aux_name="silu_aux", base_epilogue=160, program="SILU"
    ),
    EpilogueRow(
        "silu_aux_bias",
        None,
        _SILU + ", and y",
        bias=True,
        aux="store",
        aux_name="silu_aux",
        base_epilogue=164,
        program="SILU",
    ),
    EpilogueRow("clamp_aux", 131200, _CLAMP + ", and y", aux="store", aux_name="clamp_aux", clamp=True),
    EpilogueRow("clamp_aux_bias", 131204, _CLAMP + ", and y", bias=True, aux="store", aux_name="clamp_aux", clamp=True),
    EpilogueRow("drelu", 136, "y where aux > 0, else 0", aux="load"),
    EpilogueRow("drelu_bgrad", 152, "y where aux > 0, else 0, and its column sums", aux="load", gradient="bgrad"),
    EpilogueRow("dgelu", 192, "y gelu'(aux)", aux="load"),
    EpilogueRow("dgelu_bgrad", 208, "y gelu'(aux), and its column sums", aux="load", gradient="bgrad"),
    EpilogueRow("dgelu_erf", None, "y gelu_erf'(aux)", aux="load", base_epilogue=192, program="GELU_ERF_GRADIENT"),
    EpilogueRow(
        "dgelu_erf_bgrad",
        None,
        "y gelu_erf'(aux), and its column sums",
        aux="load",
        gradient="bgrad",
        base_epilogue=208,
        program="GELU_ERF_GRADIENT",
    ),
    EpilogueRow("dsilu", None, "y silu'(aux)", aux="load", base_epilogue=192, program="SILU_GRADIENT"),
    EpilogueRow(
        "dsilu_bgrad",
        None,
        "y silu'(aux), and its column sums",
        aux="load",
        gradient="bgrad",
        base_epilogue=208,
        program="SILU_GRADIENT",
    ),
    EpilogueRow("bgrada", 256, "y, and the row sums of a", gradient="bgrada"),
    EpilogueRow("bgradb", 512, "y, and the column sums of b", gradient="bgradb"),
)

EPILOGUES: dict[str, EpilogueRow] = {row.name: row for row in _ROWS}
_ALIASES = {"swish": "silu", "swish_bias": "silu_bias", "none": "default", "identity": "default"}


class Epilogue(enum.StrEnum):
    """The epilogues by name; a member is accepted wherever the name is.

    Examples
    --------
    >>> import rocpy
    >>> rocpy.Epilogue.GELU_BIAS == "gelu_bias"
    True
    """

    @classmethod
    def _missing_(cls, value: object) -> Epilogue:
        return cls(find_epilogue(value).name)

    DEFAULT = "default"
    BIAS = "bias"
    RELU = "relu"
    RELU_BIAS = "relu_bias"
    GELU = "gelu"
    GELU_BIAS = "gelu_bias"
    SILU = "silu"
    SILU_BIAS = "silu_bias"
    SIGMOID = "sigmoid"
    SIGMOID_BIAS = "sigmoid_bias"
    GELU_ERF = "gelu_erf"
    GELU_ERF_BIAS = "gelu_erf_bias"
    CLAMP = "clamp"
    CLAMP_BIAS = "clamp_bias"
    RELU_AUX = "relu_aux"
    RELU_AUX_BIAS = "relu_aux_bias"
    GELU_AUX = "gelu_aux"
    GELU_AUX_BIAS = "gelu_aux_bias"
    GELU_ERF_AUX = "gelu_erf_aux"
    GELU_ERF_AUX_BIAS = "gelu_erf_aux_bias"
    SILU_AUX = "silu_aux"
    SILU_AUX_BIAS = "silu_aux_bias"
    CLAMP_AUX = "clamp_aux"
    CLAMP_AUX_BIAS = "clamp_aux_bias"
    DRELU = "drelu"
    DRELU_BGRAD = "drelu_bgrad"
    DGELU = "dgelu"
    DGELU_BGRAD = "dgelu_bgrad"
    DGELU_ERF = "dgelu_erf"
    DGELU_ERF_BGRAD = "dgelu_erf_bgrad"
    DSILU = "dsilu"
    DSILU_BGRAD = "dsilu_bgrad"
    BGRADA = "bgrada"
    BGRADB = "bgradb"


# What type checkers know of names and members: an epilogue of the first kind gives the result, one of the second a pair
# of it and a dict; grouped products take fewer. Written out, since they read nothing else.
GroupedPlainEpilogue: TypeAlias = Literal[
    "default", "bias", "relu", "relu_bias", "gelu", "gelu_bias", "silu", "silu_bias", "sigmoid", "sigmoid_bias",
    "gelu_erf", "gelu_erf_bias", "clamp", "clamp_bias", "swish", "swish_bias", "none", "identity",
    Epilogue.DEFAULT, Epilogue.BIAS, Epilogue.RELU, Epilogue.RELU_BIAS, Epilogue.GELU, Epilogue.GELU_BIAS,
    Epilogue.SILU, Epilogue.SILU_BIAS, Epilogue.SIGMOID, Epilogue.SIGMOID_BIAS, Epilogue.GELU_ERF,
    Epilogue.GELU_ERF_BIAS, Epilogue.CLAMP, Epilogue.CLAMP_BIAS,
]  # fmt: skip
GroupedPairEpilogue: TypeAlias = Literal[
    "relu_aux", "relu_aux_bias", "gelu_aux", "gelu_aux_bias", "gelu_erf_aux", "gelu_erf_aux_bias", "silu_aux",
    "silu_aux_bias", "clamp_aux", "clamp_aux_bias",
    Epilogue.RELU_AUX, Epilogue.RELU_AUX_BIAS, Epilogue.GELU_AUX, Epilogue.GELU_AUX_BIAS, Epilogue.GELU_ERF_AUX,
    Epilogue.GELU_ERF_AUX_BIAS, Epilogue.SILU_AUX, Epilogue.SILU_AUX_BIAS, Epilogue.CLAMP_AUX, Epilogue.CLAMP_AUX_BIAS,
]  # fmt: skip
PlainEpilogue: TypeAlias = Literal[
    GroupedPlainEpilogue, "drelu", "dgelu", "dgelu_erf", "dsilu",
    Epilogue.DRELU, Epilogue.DGELU, Epilogue.DGELU_ERF, Epilogue.DSILU,
]  # fmt: skip
PairEpilogue: TypeAlias = Literal[
    GroupedPairEpilogue, "drelu_bgrad", "dgelu_bgrad", "dgelu_erf_bgrad", "dsilu_bgrad", "bgrada", "bgradb",
    Epilogue.DRELU_BGRAD, Epilogue.DGELU_BGRAD, Epilogue.DGELU_ERF_BGRAD, Epilogue.DSILU_BGRAD, Epilogue.BGRADA,
    Epilogue.BGRADB,
]  # fmt: skip


def find_epilogue(epilogue: object) -> EpilogueRow:
    """Return the row of an epilogue given by name, member or ``None``.

    Raises
    ------
    InvalidProblemError
        If there is no epilogue of that name; the message lists those there are.
    UnsupportedError
        If the user wrote it: the call takes those of the table only.
    """
    if epilogue is None:
        return EPILOGUES["default"]
    if not isinstance(epilogue, str):
        if is_custom(epilogue):
            raise UnsupportedError(
                "epilogue: custom epilogues (created by @rocpy.epilogue) are not supported in this call; pass an "
                "epilogue's name, or use rocpy.matmul (for a grouped product, once for each group)"
            )
        _refuse_function(epilogue)
        raise InvalidProblemError(
            f"epilogue must be a name or a rocpy.Epilogue member, not {type(epilogue).__name__}; names: "
            f"{', '.join(EPILOGUES)}"
        )
    asked = plain_text(epilogue)
    name = _ALIASES.get(asked, asked)
    row = EPILOGUES.get(name)
    if row is None:
        raise InvalidProblemError(f"there is no epilogue {asked!r}{_meant(name)}; names: {', '.join(EPILOGUES)}")
    return row


def stored_aux(outputs: Mapping[Any, Any]) -> Any:
    """Return the pre-activation in the dict that an ``_aux`` epilogue returned."""
    values = [value for key, value in outputs.items() if isinstance(key, str) and key.endswith("_aux")]
    if len(values) != 1:
        raise InvalidProblemError(
            f"aux: got a dict with keys {list(outputs)}, expected exactly one that ends in _aux, as in the dict that "
            "an _aux epilogue returns; pass the matrix itself"
        )
    return values[0]


class UserEpilogue:
    """Base of the epilogues that users write (:func:`rocpy.epilogue`): products know one without importing them."""

    __slots__ = ()


def is_custom(epilogue: object) -> bool:
    """Whether an epilogue is one that the user wrote."""
    return isinstance(epilogue, UserEpilogue)


def _refuse_function(epilogue: object) -> None:
    if not callable(epilogue):
        return
    own, approximate = torch_activation(epilogue)
    if own is not None:
        name = {"none": "default", "gelu": "gelu" if approximate == "tanh" else "gelu_erf"}.get(own, own)
        forms = " (its erf form; 'gelu' is the tanh form)" if name == "gelu_erf" else ""
        raise InvalidProblemError(f"epilogue: got {_shown(epilogue)}; pass its name, {name!r}{forms}")
    name = _shown(epilogue)
    if isinstance(epilogue, type):
        kind = "class; pass a function decorated with @rocpy.epilogue"
    elif hasattr(epilogue, "__name__"):
        called = f"{name}(x)" if name.isidentifier() else "f(x)"
        kind = (
            "plain function; decorate it with @rocpy.epilogue, or, where it is another package's, pass "
            f"rocpy.epilogue(lambda x: {called})"
        )
    else:
        kind = "callable object; decorate a function of its formula with @rocpy.epilogue"
    near = _meant(name.lower()) if name.lower() in EPILOGUES or name.lower() in _ALIASES else ""
    raise InvalidProblemError(f"epilogue: {name} is a {kind}, for rocpy.matmul, or pass an epilogue's name{near}")


# torch's functions and modules by the activations of rocpy.torch's layers; GELU's form is an argument of its own.
TORCH_ACTIVATIONS = {
    "none": ("nn.Identity",),
    "relu": ("nn.ReLU", "relu", "nn.functional.relu"),
    "gelu": ("nn.GELU", "nn.functional.gelu"),
    "silu": ("nn.SiLU", "nn.functional.silu"),
    "sigmoid": ("nn.Sigmoid", "sigmoid", "nn.functional.sigmoid"),
}
# What other packages call an epilogue.
OTHER_NAMES = {
    "gelu_tanh": "gelu", "gelu_new": "gelu", "gelu_fast": "gelu", "gelu_pytorch_tanh": "gelu", "gelu_none": "gelu_erf",
    "gelu_python": "gelu_erf", "gelu_exact": "gelu_erf",
}  # fmt: skip
# Functions of their own, whose names are like those of epilogues.
OTHER_FUNCTIONS = (
    "elu", "celu", "selu", "crelu", "prelu", "rrelu", "relu6", "relu2", "leaky_relu", "quick_gelu", "hardsigmoid",
    "hard_sigmoid", "hardsilu", "logsigmoid", "log_sigmoid",
)  # fmt: skip


def torch_activation(function: Any) -> tuple[str | None, str]:
    """Return the activation that one of torch's functions, modules or their classes is, and GELU's approximation."""
    torch = imported("torch")
    approximate = "none"
    if type(function) is functools.partial and not function.args:
        approximate, function = function.keywords.get("approximate", "none"), function.func
    for name, paths in TORCH_ACTIVATIONS.items():
        for path in paths if torch is not None else ():
            own: Any = functools.reduce(getattr, path.split("."), torch)
            if function is own or (isinstance(own, type) and type(function) is own):
                return name, approximate if function is own else getattr(function, "approximate", approximate)
    return None, approximate


def _shown(function: Any) -> str:
    """Return what a function, a class or a callable object is called in messages."""
    if type(function) is functools.partial:
        return f"a partial of {_shown(function.func)}"
    name: str = getattr(function, "__name__", type(function).__name__)
    if torch_activation(function)[0] is None:
        return name
    if isinstance(function, type):
        return f"torch.nn.{name}"
    return f"torch's {name}" if hasattr(function, "__name__") else f"torch.nn.{function}"


def _meant(name: str) -> str:
    if name == "gelu":
        return "; did you mean 'gelu' (the tanh form) or 'gelu_erf' (the erf form)?"
    near = OTHER_NAMES.get(name.lower()) or ("" if name.lower() in OTHER_FUNCTIONS else nearest(name, EPILOGUES))
    return f"; did you mean {near!r}?" if near else ""


def refuse_inputs(epilogue: object) -> None:
    """Refuse named inputs beside an epilogue that takes none."""
    shown = "no epilogue" if epilogue is None else f"epilogue {str(epilogue)!r}"
    if not isinstance(epilogue, str):
        _refuse_function(epilogue)
    raise InvalidProblemError(
        f"epilogue_inputs: only custom epilogues (created by @rocpy.epilogue) take inputs; got {shown}"
    )

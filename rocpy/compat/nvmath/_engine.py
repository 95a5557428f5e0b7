# SPDX-License-Identifier: MIT
"""The rocpy.Matmul behind nvmath-python's: operands turned to what rocpy takes, and its results turned back."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, NoReturn

import numpy as np

import rocpy
from rocpy import dtypes
from rocpy._memory_record import MemoryRecord, any_moved, records_of, refuse_gradients
from rocpy._messages.pickling import refuse_pickling
from rocpy._operand import describe, shares_memory
from rocpy.blaslt.engine.streams import device_and_stream
from rocpy.compat.nvmath import _arrays, _block_scaling, _epilogs
from rocpy.compat.nvmath._algorithm import Algorithm
from rocpy.compat.nvmath._configuration import MatmulOptions, MatmulPlanPreferences, MatmulQuantizationScales, coerce
from rocpy.compat.nvmath._enums import MatmulEpilog, MatmulReductionScheme
from rocpy.compat.nvmath._errors import InvalidMatmulState, MatmulStateError, ReleasedError
from rocpy.compat.nvmath._memory import Resources
from rocpy.compat.nvmath._specification import Specification
from rocpy.errors import InvalidOperandError, InvalidProblemError, UnsupportedError
from rocpy.tuning._timing import Stopwatch

SCALES = ("a", "b", "c", "d")
# The axis of K.
_AXES = {"a": -1, "b": -2}


class Engine:
    """State and conversions of a product; :class:`Matmul` has what users call."""

    options: MatmulOptions
    _specification: Specification
    _operands: dict[str, Any]
    _kinds: dict[str, _Kind | None]
    _inputs: dict[str, Any]
    _scales: dict[str, Any]
    _alpha: Any
    _beta: Any
    _epilog: MatmulEpilog
    _inner: rocpy.Matmul | None
    _algorithms: list[Algorithm]
    _transposed: bool
    _dirty: bool
    _freed: bool
    _released: bool
    _stream: Any
    _view_c: Any
    _resources: Resources

    _records: tuple[MemoryRecord, ...] = ()  # where operands, inputs and scales were when rocpy was given them
    _copies = False  # whether what rocpy is given is made of the operands at each execution

    def __reduce__(self) -> NoReturn:
        refuse_pickling(self, "create another with the same arguments")

    # ---- what rocpy is given ----

    def _matrix(self, name: str) -> Any:
        """Return the matrix that an operand stands for."""
        value = self._operands[name]
        return _arrays.column(value) if name == "c" else value

    def _make(self, epilog: MatmulEpilog, inputs: Mapping[str, Any], wanted: MatmulPlanPreferences) -> rocpy.Matmul:
        """Return rocpy's product of the operands as they are."""
        spec, options = self._specification, self.options
        row = _epilogs.ROWS[epilog]
        transposed = row.column or spec.column_major
        # Not turned, a is rocpy's a, and the sums of its rows are rocpy's too.
        epilogue = row.epilogue if transposed or epilog is not MatmulEpilog.BGRADA else "bgrada"
        views = self._views(epilog, inputs, transposed)
        scales = self._transposed_scales(transposed)
        settings: dict[str, Any] = {"epilogue": epilogue, "dtype": spec.result_dtype, "compute": spec.compute}
        return rocpy.Matmul(
            views.pop("a"),
            views.pop("b"),
            **views,
            **settings,
            alpha=self._alpha,
            beta=self._beta,
            amax=options.result_amax,
            stream=self._stream,
            options={
                "max_workspace_bytes": options.workspace_bytes(),
                "reproducible": wanted.reduction_scheme_mask == MatmulReductionScheme.NONE,
            },
            **scales,
        )

    def _views(self, epilog: MatmulEpilog, inputs: Mapping[str, Any], transposed: bool) -> dict[str, Any]:
        """Return the operands as rocpy takes them: views, except for masks and numpy's conjugates."""
        spec = self._specification
        for name, value in self._operands.items():
            if value is not None:
                self._check_same(name, value)
        a, b, c = self._matrix("a"), self._matrix("b"), self._matrix("c")
        if spec.dtype == "float4_e2m1fn":
            a, b = self._widened(a, "a"), self._widened(b, "b")
        a = a[None, :] if spec.vector_a else a
        b = b[:, None] if spec.vector_b else b
        a = _arrays.conjugate(a) if spec.conjugate[0] else a
        b = _arrays.conjugate(b) if spec.conjugate[1] else b
        views = {"a": a, "b": b, "c": c}
        if transposed:
            views = {"a": _arrays.transposed(b), "b": _arrays.transposed(a), "c": _arrays.transposed(c)}
        for name in _epilogs.ROWS[epilog].inputs:
            if name == "bias":
                views["bias"] = _epilogs.bias(inputs[name], spec.extents)
            else:
                dtype = dtypes.lookup(spec.result_dtype)
                kind = _torch_dtype(dtype) if spec.extents.package == "torch" else dtype.numpy
                views["aux"] = _epilogs.auxiliary(name, inputs[name], spec.extents, kind)
        return views

    def _widened(self, operand: Any, name: str) -> Any:
        """Return an NVFP4 operand in a type of 16 bits, which holds every element times its scale."""
        dtype = dtypes.lookup("float16" if self._specification.result_dtype == "float16" else "bfloat16")
        kind = _torch_dtype(dtype) if self._specification.extents.package == "torch" else dtype.numpy
        return _block_scaling.widened(operand, self._scales[name], _AXES[name], kind)

    def _block_scales(self, transposed: bool) -> dict[str, Any]:
        if self._specification.dtype == "float4_e2m1fn":
            return {}
        lines = {name: _block_scaling.lines_of(self._scales[name], self._operands[name], _AXES[name]) for name in "ab"}
        left, right = ("b", "a") if transposed else ("a", "b")
        return {"scale_a": lines[left], "scale_b": lines[right].swapaxes(-1, -2)}

    def _transposed_scales(self, transposed: bool) -> dict[str, Any]:
        if self.options.block_scaling:
            return self._block_scales(transposed)
        names_of = {"a": "b", "b": "a", "c": "c", "d": "d"} if transposed else {name: name for name in SCALES}
        return {f"scale_{names_of[name]}": value for name, value in self._scales.items() if value is not None}

    def _refresh(self, inner: rocpy.Matmul) -> None:
        """Give rocpy the operands anew where they changed, or where what it has is a copy of them."""
        copied = any(name.endswith("_aux") for name in self._inputs)
        copied = copied or self._copies or self.options.block_scaling
        copied = copied or (any(self._specification.conjugate) and self._specification.extents.package != "torch")
        refuse_gradients(self._records)
        moved = any_moved(self._records)
        if not self._dirty and not copied and not moved:
            return
        views = {
            name: view
            for name, view in self._views(self._epilog, self._inputs, self._transposed).items()
            if view is not None
        }
        inner.reset_operands(**views, alpha=self._alpha, beta=self._beta, **self._transposed_scales(self._transposed))
        self._view_c = views.get("c")
        if self._dirty or moved:
            scales = {f"quantization_scales.{name}": value for name, value in self._scales.items()}
            self._records = records_of({**self._operands, **self._inputs, **scales})
        self._dirty = False

    def _launch(self, inner: rocpy.Matmul, algorithm: Algorithm | None, stream: Any) -> Any:
        self._refresh(inner)
        stream = self._stream if stream is None else stream
        result = self._queue(inner, algorithm, stream)
        if stream is not None and (self.options.blocking is True or self._specification.device == "cpu"):
            rocpy.Device(self.options.device_id).synchronize()
        return result

    def _queue(self, inner: rocpy.Matmul, algorithm: Algorithm | None, stream: Any) -> Any:
        out = self._view_c if self.options.inplace else None
        record = None if algorithm is None else algorithm.record
        with rocpy.Device(self.options.device_id), self._lent(inner, stream):
            return inner.execute(out=out, algorithm=record, stream=stream)

    def _lent(self, inner: rocpy.Matmul, stream: Any) -> AbstractContextManager[Any]:
        """Return the block in which products use the user's handle and memory."""
        if self.options.handle is None and self.options.allocator is None:
            return nullcontext()
        a = inner.operand_arrays["a"]
        needed = max((one.workspace_bytes for one in inner.algorithms), default=0)
        return self._resources.on(device_and_stream(getattr(a, "memory", a), stream), stream, needed)

    def _stopwatch(self, inner: rocpy.Matmul, stream: Any) -> Stopwatch:
        """Return what measures work on the stream that the product runs on."""
        a = inner.operand_arrays["a"]
        with rocpy.Device(self.options.device_id):
            return Stopwatch(*device_and_stream(getattr(a, "memory", a), stream))

    def _auxiliary(self, extra: Mapping[str, Any]) -> dict[str, Any]:
        """Return the dict beside a result under nvmath's names and in its shapes."""
        outputs = {}
        for name, value in extra.items():
            if name == "amax":
                outputs["result_amax"] = value.reshape(1)
            else:
                output = _epilogs.ROWS[self._epilog].output
                outputs[output] = _epilogs.output(output, value, self._specification.extents)
        return outputs

    # ---- checks ----

    def _check_alive(self, what: str) -> None:
        if self._freed:
            raise InvalidMatmulState(f"{what}: this Matmul was freed; create a new one")

    def _check_ready(self, what: str) -> None:
        self._check_alive(what)
        if self._released:
            raise ReleasedError(f"{what}: the operands were released; pass all of them to reset_operands() first")

    def _check_planned(self, what: str) -> rocpy.Matmul:
        self._check_ready(what)
        if self._inner is None:
            raise MatmulStateError(f"{what}: there is no plan yet; call plan()")
        return self._inner

    def _check_same(self, name: str, value: Any) -> None:
        kind = self._kinds[name]
        if kind is None:
            raise InvalidProblemError(f"{name}: this product was created without it; create a new Matmul with it")
        _arrays.same_package(self._specification.extents.package, value, name)
        fresh = _kind(value, name)
        if fresh != kind:
            raise InvalidProblemError(
                f"{name}: it was {kind} and would become {fresh}; create a new Matmul for another problem"
            )

    def _check_scales(self, requested: Any) -> dict[str, Any]:
        """Return the scales of the product by name; missing and superfluous ones are reported."""
        spec = self._specification
        record = coerce(MatmulQuantizationScales, requested, "quantization_scales")
        scales = {name: getattr(record, name) for name in SCALES}
        narrow = dtypes.lookup(spec.dtype).bits <= 8
        if not narrow:
            return {}
        wanted = {"a", "b"}
        by_blocks = self.options.block_scaling
        if dtypes.lookup(spec.result_dtype).bits <= 8:
            wanted.add("d")
            if self._operands["c"] is not None:
                wanted.add("c")
        for name, value in scales.items():
            if (value is None) == (name in wanted):
                state = "needs" if value is None else "takes no"
                raise InvalidProblemError(
                    f"quantization_scales: a product of {spec.dtype} to {spec.result_dtype} {state} {name}; its scales "
                    f"are {', '.join(sorted(wanted))}"
                )
            operand = self._operands.get(name)
            if value is not None and by_blocks and operand is not None:
                _block_scaling.check_scale(name, value, operand, _AXES[name], spec.extents.package)
            elif value is not None and not by_blocks:
                scales[name] = self._checked_scale(name, value)
        return {name: scales[name] for name in SCALES if name in wanted}

    def _checked_scale(self, name: str, value: Any) -> Any:
        if isinstance(value, (np.integer, np.floating)):  # numbers beside any package's arrays
            return float(value)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return value
        _arrays.same_package(self._specification.extents.package, value, f"quantization_scales.{name}")
        if _arrays.dtype_name(value, f"quantization_scales.{name}") != "float32" or tuple(value.shape) not in (
            (),
            (1,),
        ):
            raise InvalidProblemError(
                f"quantization_scales.{name}: got shape {tuple(value.shape)}, {value.dtype}, expected a number, or "
                "float32 of shape () or (1,)"
            )
        return value

    def _merged_scales(self, value: Any) -> dict[str, Any]:
        record = coerce(MatmulQuantizationScales, value, "quantization_scales")
        changes = {name: getattr(record, name) for name in SCALES if getattr(record, name) is not None}
        return self._check_scales({**self._scales, **changes})

    def _merged_inputs(self, changes: Mapping[str, Any] | None) -> dict[str, Any]:
        if changes is None:
            return self._inputs
        if not isinstance(changes, Mapping):
            raise InvalidOperandError(f"epilog_inputs: got {type(changes).__name__}, expected a dict")
        unknown = [name for name in changes if name not in self._inputs]
        if unknown:
            raise InvalidProblemError(
                f"epilog_inputs: {', '.join(map(repr, unknown))}; the plan's epilog takes "
                f"{list(self._inputs) or 'none'}"
            )
        merged = {**self._inputs, **changes}
        for name, value in changes.items():
            if name == "bias":
                _epilogs.bias(value, self._specification.extents)
            else:
                _arrays.same_package(self._specification.extents.package, value, name)
        return merged

    def _log(self, message: str, *details: object) -> None:
        logger = self.options.logger
        if logger is not None:
            logger.info(message, *details)

    # ---- autotuning in place ----

    def _save_c(self) -> Any:
        c = self._operands["c"]
        if not self.options.inplace:
            return None
        return c.clone() if hasattr(c, "clone") else c.copy()

    def _restore_c(self, saved: Any) -> None:
        if saved is not None:
            self._operands["c"][...] = saved


def check_target(operands: Mapping[str, Any]) -> None:
    """Refuse a c that the result cannot be written into."""
    c = operands["c"]
    try:
        describe(c, "c", output=True)
    except InvalidOperandError as error:  # nvmath raises ValueError
        raise InvalidProblemError(str(error)) from None
    for name in ("a", "b"):
        if shares_memory(c, operands[name]):
            raise InvalidProblemError(
                f"c: shares memory with {name}, which is read while the result is written into c; pass a copy"
            )


def kinds_of(operands: Mapping[str, Any]) -> dict[str, _Kind | None]:
    """Return what must stay the same of each operand."""
    return {name: None if value is None else _kind(value, name) for name, value in operands.items()}


def algorithm_records(algorithms: object) -> list[Any]:
    """Return rocpy's records of algorithms that the user gave."""
    if not isinstance(algorithms, Iterable):
        raise InvalidOperandError(f"algorithms: got {type(algorithms).__name__}, expected a sequence of Algorithm")
    records = []
    for algorithm in algorithms:
        if not isinstance(algorithm, Algorithm):
            raise InvalidOperandError(f"algorithms: got {type(algorithm).__name__}, expected each to be an Algorithm")
        records.append(algorithm.record)
    return records


def timed(algorithm: Algorithm, elapsed_ms: float) -> Algorithm:
    """Return an algorithm with its measured time."""
    return Algorithm(dataclasses.replace(algorithm.record, elapsed_ms=elapsed_ms, source="tuned"))


class _Kind(NamedTuple):
    """What an algorithm is chosen for."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device: str

    def __str__(self) -> str:
        return f"shape {self.shape}, strides {self.strides}, {self.dtype}, on {self.device}"


def _kind(array: Any, name: str) -> _Kind:
    shape = tuple(array.shape)
    # The stride of an axis that has one element, or none, says nothing of where elements are.
    strides = (
        stride if extent > 1 and 0 not in shape else 1
        for extent, stride in zip(shape, _arrays.strides_of(array), strict=True)
    )
    return _Kind(shape, tuple(strides), _arrays.dtype_name(array, name), _arrays.device_of(array))


def _torch_dtype(dtype: dtypes.DType) -> Any:
    if not dtype.torch:
        raise UnsupportedError(f"torch has no {dtype.name}")
    return getattr(sys.modules["torch"], dtype.torch)

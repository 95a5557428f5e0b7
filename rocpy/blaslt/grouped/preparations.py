# SPDX-License-Identifier: MIT
"""What is done before and after a grouped call that is not launched as it is: operands in CPU memory, odd layouts."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from rocpy._operand import shares_memory
from rocpy.blaslt.arrays.copies import assign, contiguous
from rocpy.blaslt.arrays.framework import values
from rocpy.blaslt.arrays.staging import check_allowed, download, on_device_of, take, upload, upload_scale
from rocpy.blaslt.grouped.groups import overlap
from rocpy.blaslt.model.options import Options
from rocpy.blaslt.model.preparation import Preparation
from rocpy.blaslt.model.scale_arguments import is_scale_array
from rocpy.runtime.memory import Buffer

if TYPE_CHECKING:
    from rocpy.blaslt.grouped._plans import GroupedCall

__all__: list[str] = []


class CopiedGroups(Preparation["GroupedCall"]):
    """Groups of which operands are copied, or the result is, because the library cannot take them as they lie.

    ``names`` are those of what is copied, ``dtype`` is the result's, and ``covered`` the index of its elements that
    belong to a group.
    """

    def __init__(self, call: GroupedCall, names: tuple[str, ...], dtype: str, covered: Any) -> None:
        self._call, self._names, self._dtype, self._covered = call, names, dtype, covered
        self.works_on_result = "out" in names

    def prepare(self) -> GroupedCall:
        """Return the call on the copies."""
        changes = {name: contiguous(getattr(self._call, name)) for name in self._names if name != "out"}
        if self.works_on_result:
            changes.update(out=None, dtype=self._dtype)
        return self._call.replaced(**changes)

    def finish(self, outputs: Any) -> Any:
        """Write the result where the user wants it; what no group covers keeps what it held."""
        if not self.works_on_result:
            return outputs
        result, *extra = outputs if isinstance(outputs, tuple) else (outputs,)
        out = self._call.out
        if self._covered is Ellipsis:
            assign(out, result)
        elif isinstance(out, Buffer):
            whole = out.to_numpy()
            assign(whole[self._covered], values(result)[self._covered])
            out.copy_from(whole)
        else:
            part = values(result) if isinstance(result, Buffer) else result
            assign(out[self._covered], part[self._covered])
        return (out, *extra) if extra else out


def _refuse_shared_out(call: GroupedCall) -> None:
    """Refuse a result in memory that is read, as where the arrays themselves are."""
    if call.out is None:
        return
    read = {name: getattr(call, name) for name in ("a", "b", "bias") if getattr(call, name) is not None}
    read |= {name: getattr(call, name) for name in ("scale_a", "scale_b") if is_scale_array(getattr(call, name))}
    for name, array in read.items():
        if shares_memory(call.out, array):
            raise overlap("out", name, False)


class StagedGroups(Preparation["GroupedCall"]):
    """Groups in CPU memory: multiplied on copies on the stream's device, from where the results are brought back."""

    def __init__(self, call: GroupedCall, options: Options) -> None:
        check_allowed(options)
        _refuse_shared_out(call)
        self._call, self._options = call, options
        # The copies, and the device that is the current one until they are given back.
        self._held = ExitStack()

    def prepare(self) -> GroupedCall:
        """Return the call on the copies."""
        call = self._call
        self._held.enter_context(on_device_of(call.stream))
        copies = {}
        for name in ("a", "b", "bias"):
            value = getattr(call, name)
            copies[name] = take(value, name, self._options)
            if copies[name] is not value:
                self._held.callback(copies[name].close)
        # What no group covers keeps what it held, so that out goes there and back.
        out = upload(call.out, "out")
        scales = {name: upload_scale(getattr(call, name), name) for name in ("scale_a", "scale_b")}
        return call.replaced(**copies, **scales, out=out)

    def finish(self, outputs: Any) -> Any:
        """Return the outputs in arrays like the operands, or in ``out``."""
        call = self._call
        result, *extra = outputs if isinstance(outputs, tuple) else (outputs,)
        fetched = download(result, call.a, call.stream)
        extra = [{key: download(value, call.a, call.stream) for key, value in one.items()} for one in extra]
        if call.out is not None:
            assign(call.out, fetched)
            fetched = call.out
        return (fetched, *extra) if extra else fetched

    def close(self) -> None:
        """Free the copies and make the caller's device the current one again."""
        self._held.close()

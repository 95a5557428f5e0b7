# SPDX-License-Identifier: MIT
"""Tuning records in and out of files: rocpy's own JSON, PyTorch TunableOp's CSV, hipBLASLt's offline tuning file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

from rocpy.errors import InvalidOperandError, InvalidProblemError
from rocpy.tuning._files import LARGEST_BYTES, SCHEMA, Record, check_record, fault_of, warn_of_records

__all__ = ["export_hipblaslt", "export_json", "export_tunableop", "import_json"]

T = TypeVar("T")

FORMAT = "rocpy tuning records"
OP_LETTERS = {111: "N", 112: "T", 113: "C"}  # hipblasOperation_t
# TunableOp's words for element types, as in the names of its operators.
TORCH_WORDS = {"float16": "Half", "bfloat16": "BFloat16", "float32": "float", "float64": "double"}
# hipblaslt-bench's words for element and compute types.
BENCH_TYPES = {
    "float16": "f16_r",
    "bfloat16": "bf16_r",
    "float32": "f32_r",
    "float64": "f64_r",
    "float8_e4m3fn": "f8_r",
    "float8_e5m2": "bf8_r",
    "float8_e4m3fnuz": "f8_fnuz_r",
    "float8_e5m2fnuz": "bf8_fnuz_r",
    "int8": "i8_r",
    "int32": "i32_r",
}
BENCH_COMPUTE = {"float32": "f32_r", "tf32": "xf32_r", "float64": "f64_r", "int32": "i32_r"}
OFFLINE_COLUMNS = (
    "transA,transB,batch_count,m,n,k,a_type,b_type,c_type,compute_type,solution_index"  # hipBLASLt 0.12 to 1.4
)


def _listed(records: Iterable[Record]) -> list[Record]:
    if not isinstance(records, Iterable):
        raise InvalidOperandError(f"records: got {type(records).__name__}, expected a list of rocpy.tuning.Record")
    return list(records)


def export_json(records: Iterable[Record]) -> str:
    """Return records as a JSON document that :func:`import_json` accepts.

    Raises
    ------
    InvalidOperandError
        If an item is no record.
    InvalidProblemError
        If a record has a value that no record has, such as a time of 0.

    Examples
    --------
    >>> import rocpy
    >>> rocpy.tuning.import_json(rocpy.tuning.export_json([]))
    []
    """
    records = _listed(records)
    for number, record in enumerate(records):
        check_record(record, f"record {number}")
    return json.dumps({"format": FORMAT, "schema": SCHEMA, "records": [asdict(record) for record in records]}, indent=1)


def import_json(text: str) -> list[Record]:
    """Return the records of a JSON document.

    Raises
    ------
    InvalidProblemError
        If it is not such a document, or has another schema.

    Warns
    -----
    RocpyWarning
        If a record lacks a field or has an invalid value, such as a time of 0; it is omitted, and the warning names it.

    Examples
    --------
    >>> import rocpy
    >>> rocpy.tuning.import_json("[]")
    Traceback (most recent call last):
    ...
    rocpy.errors.InvalidProblemError: not a document of tuning records: it has no "format"
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError, TypeError) as error:
        raise InvalidProblemError(f"not a document of tuning records: {error}") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InvalidProblemError('not a document of tuning records: it has no "format"')
    if document.get("schema") != SCHEMA:
        raise InvalidProblemError(
            f"tuning records of schema {document.get('schema')!r}; this rocpy reads only {SCHEMA}"
        )
    rows = document.get("records", [])
    if not isinstance(rows, list):
        raise InvalidProblemError(f"not a document of tuning records: its records are {type(rows).__name__}")
    records, faults = [], []
    for number, row in enumerate(rows):
        values: dict[str, Any] = {
            field.name: row.get(field.name) if isinstance(row, dict) else None for field in fields(Record)
        }
        record = Record(**values)
        fault = fault_of(record)
        if fault:
            faults.append((f"record {number}", fault))
        else:
            records.append(record)
    warn_of_records("tuning records", faults)
    return records


# What a record's JSON texts raise where they hold something else than rocpy writes.
_FAULTS = (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError)


def _said(records: Iterable[Record], say: Callable[[Record, dict[str, Any], dict[str, Any]], T | None]) -> list[T]:
    """Return what ``say`` makes of each record measured on AMD's library; the host's indices are its own.

    ``None`` stands for what a format cannot say. Records whose texts are no record's are left out with a warning.
    """
    entries, faults = [], []
    for number, record in enumerate(records):
        try:
            fault = fault_of(record)
            if fault:
                raise ValueError(fault)
            environment, terms = json.loads(record.scope), json.loads(record.key)
            said = None if environment.get("platform") == "host" else say(record, environment, terms)
        except _FAULTS as error:
            faults.append((f"record {number}", f"{type(error).__name__}: {error}"[:200]))
            continue
        if said is not None:
            entries.append(said)
    warn_of_records("tuning records", faults)
    return entries


def _count(value: Any) -> int:
    """Return an extent, a stride or a number of batches; anything else is no record's."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= LARGEST_BYTES:
        raise ValueError(f"{value!r:.80} is not an extent")
    return value


def _extents(terms: dict[str, Any]) -> tuple[str, int, int, int]:
    """Return the operations as two letters, and m, n, k in the library's terms."""
    ops = OP_LETTERS.get(terms["op_a"], "N") + OP_LETTERS.get(terms["op_b"], "N")
    k = terms["a"]["columns"] if ops[0] == "N" else terms["a"]["rows"]
    return ops, _count(terms["d"]["rows"]), _count(terms["d"]["columns"]), _count(k)


def _types(terms: dict[str, Any]) -> tuple[str, str, str]:
    a, b = (terms["b_type"], terms["a_type"]) if terms["swapped"] else (terms["a_type"], terms["b_type"])
    return a, b, terms["dtype"]


# Facts of a problem that its key holds where there are any: scales, and an epilogue of the user's with its inputs.
_BEYOND_PLAIN = ("scale_a", "scale_b", "scale_c", "scale_d", "amax", "expression", "inputs")


def _plain(terms: dict[str, Any]) -> bool:
    """Whether there is nothing that the other formats' keys leave out: an epilogue, scales, a loop, a packed weight."""
    if terms["epilogue"] != "default" or terms["outer_shape"] or terms["packed"]:
        return False
    return not any(terms.get(name) for name in _BEYOND_PLAIN)


@dataclass(frozen=True, slots=True)
class _Row:
    """A record in another format: version, revision and architecture, the format's key, operations as two letters."""

    environment: tuple[str, str, str]
    key: str
    ops: str
    record: Record


def _fastest(rows: Iterable[_Row]) -> list[_Row]:
    """Return the fastest of the rows of each key: the formats' readers take one, and not by its time."""
    best: dict[str, _Row] = {}
    for row in rows:
        other = best.get(row.key)
        if other is None or row.record.measured_us < other.record.measured_us:
            best[row.key] = row
    return list(best.values())


def export_tunableop(records: Iterable[Record], *, torch_version: str = "") -> tuple[str, int]:
    """Return records as a results file of PyTorch's TunableOp, and how many cannot be expressed in it.

    Parameters
    ----------
    records
        Records of one environment.
    torch_version
        Value of the validator line ``PT_VERSION``, without which torch ignores the file; omitted if empty.

    Returns
    -------
    tuple of str and int
        The CSV, and the number of omitted records: those of the host platform, which has its own solution indices, and
        those with an epilogue, scales or packed weights, which TunableOp's keys do not distinguish.

    Raises
    ------
    InvalidProblemError
        If the records belong to more than one environment.

    Notes
    -----
    The file's keys contain neither an addend ``c`` nor the strides of a batch; of records that differ in those, the
    fastest is written.

    Examples
    --------
    >>> import rocpy
    >>> rocpy.tuning.export_tunableop([])
    ('', 0)
    """
    records = _listed(records)
    rows = _said(records, _tunableop_row)
    if not rows:
        return "", len(records)
    version, revision, arch = _one_environment([row.environment for row in rows])
    lines = [f"Validator,PT_VERSION,{torch_version}"] if torch_version else []
    lines += [f"Validator,HIPBLASLT_VERSION,{version}-{revision}", f"Validator,GCN_ARCH_NAME,{arch}"]
    for row in _fastest(rows):
        name = f"Gemm_Hipblaslt_{row.ops}_{row.record.solution}"
        lines.append(f"{row.key},{name},{row.record.measured_us / 1e3:.6g}")
    return "".join(line + "\n" for line in lines), len(records) - len(rows)


def _tunableop_row(record: Record, environment: dict[str, Any], terms: dict[str, Any]) -> _Row | None:
    a, b, d = _types(terms)
    if a not in TORCH_WORDS or not a == b == d or not _plain(terms) or terms["compute"] == "tf32":
        return None
    ops, m, n, k = _extents(terms)
    leading = "_".join(["ld", *(str(_count(terms[name]["ld"])) for name in ("a", "b", "c"))])
    count = _count(terms["batch_count"])
    batch = f"_B_{count}" if count > 1 else ""
    operator = "GemmStridedBatchedTunableOp" if batch else "GemmTunableOp"
    key = f"{operator}_{TORCH_WORDS[a]}_{ops},{ops.lower()}_{m}_{n}_{k}{batch}_{leading}"
    return _Row(_environment(environment), key, ops, record)


def export_hipblaslt(records: Iterable[Record]) -> tuple[str, int]:
    """Return records as a file for ``HIPBLASLT_TUNING_OVERRIDE_FILE``, and how many cannot be expressed in it.

    Parameters
    ----------
    records
        Records of one environment.

    Returns
    -------
    tuple of str and int
        The file, whose first line is the library's revision, and the number of omitted records: those of the host
        platform, and those with an epilogue, scales or packed weights, which the file's keys do not distinguish.

    Raises
    ------
    InvalidProblemError
        If the records belong to more than one environment.

    Notes
    -----
    The file's keys contain neither an addend ``c`` nor leading dimensions or strides; of records that differ in those,
    the fastest is written.

    Examples
    --------
    >>> import rocpy
    >>> rocpy.tuning.export_hipblaslt([])
    ('', 0)
    """
    records = _listed(records)
    rows = _said(records, _offline_row)
    if not rows:
        return "", len(records)
    _, revision, _ = _one_environment([row.environment for row in rows])
    lines = [f"Git Version: {revision}"]
    for row in _fastest(rows):
        lines += [OFFLINE_COLUMNS, f"{row.key},{row.record.solution}"]
    return "".join(line + "\n" for line in lines), len(records) - len(rows)


def _offline_row(record: Record, environment: dict[str, Any], terms: dict[str, Any]) -> _Row | None:
    types, compute = _types(terms), BENCH_COMPUTE.get(terms["compute"])
    if not set(types) <= set(BENCH_TYPES) or compute is None or not _plain(terms):
        return None
    ops, m, n, k = _extents(terms)
    names = ",".join(BENCH_TYPES[name] for name in types)
    key = f"{ops[0]},{ops[1]},{_count(terms['batch_count'])},{m},{n},{k},{names},{compute}"
    return _Row(_environment(environment), key, ops, record)


def _environment(row: dict[str, Any]) -> tuple[str, str, str]:
    """Return version and revision of hipBLASLt and the architecture, each one word of a line."""
    identity = tuple(str(row[name]) for name in ("hipblaslt", "revision", "arch"))
    if any(not word.isprintable() or "," in word for word in identity):
        raise ValueError(f"{identity} is not an environment")
    return identity[0], identity[1], identity[2]


def _one_environment(environments: Iterable[tuple[str, str, str]]) -> tuple[str, str, str]:
    distinct = set(environments)
    if len(distinct) != 1:
        raise InvalidProblemError(
            f"the records are of {len(distinct)} environments, and the file can hold one: choose one of "
            + "; ".join(f"hipBLASLt {version}-{revision} on {arch}" for version, revision, arch in sorted(distinct))
        )
    return distinct.pop()

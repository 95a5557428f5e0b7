# SPDX-License-Identifier: MIT
"""Tuning records in and out of files: rocpy's own JSON, PyTorch TunableOp's CSV, hipBLASLt's offline tuning file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, fields
from typing import Any

from rocpy.errors import InvalidProblemError
from rocpy.tuning._files import SCHEMA, Record

__all__ = ["export_hipblaslt", "export_json", "export_tunableop", "import_json"]

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


def export_json(records: Iterable[Record]) -> str:
    """Return records as a JSON document that :func:`import_json` takes.

    Examples
    --------
    >>> import rocpy
    >>> rocpy.tuning.import_json(rocpy.tuning.export_json([]))
    []
    """
    return json.dumps({"format": FORMAT, "schema": SCHEMA, "records": [asdict(record) for record in records]}, indent=1)


def import_json(text: str) -> list[Record]:
    """Return the records of a JSON document.

    Raises
    ------
    InvalidProblemError
        If it is no such document, is of another schema, or a record lacks a field or has a time that is none.

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
    except ValueError as error:
        raise InvalidProblemError(f"not a document of tuning records: {error}") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InvalidProblemError('not a document of tuning records: it has no "format"')
    if document.get("schema") != SCHEMA:
        raise InvalidProblemError(f"tuning records of schema {document.get('schema')}; this rocpy reads {SCHEMA}")
    return [_record(row, number) for number, row in enumerate(document.get("records", ()))]


def _record(row: Any, number: int) -> Record:
    kinds = {"str": str, "int": int, "float": (int, float)}
    values: dict[str, Any] = {}
    for field in fields(Record):
        value = row.get(field.name) if isinstance(row, dict) else None
        if not isinstance(value, kinds[str(field.type)]) or isinstance(value, bool):  # type: ignore[arg-type]
            raise InvalidProblemError(f"record {number}: {field.name} is {value!r}, expected a {field.type}")
        values[field.name] = value
    record = Record(**values)
    if not (record.measured_us > 0 and record.baseline_us > 0):
        raise InvalidProblemError(f"record {number}: measured_us and baseline_us must be above 0")
    return record


def _amd(records: Iterable[Record]) -> Iterator[tuple[Record, dict[str, Any], dict[str, Any]]]:
    """Yield the records measured on AMD's library, with environment and problem; the host's indices are its own."""
    for record in records:
        environment = json.loads(record.scope)
        if environment.get("platform") != "host":
            yield record, environment, json.loads(record.key)


def _extents(terms: dict[str, Any]) -> tuple[str, int, int, int]:
    """Return the operations as two letters, and m, n, k in the library's terms."""
    ops = OP_LETTERS.get(terms["op_a"], "N") + OP_LETTERS.get(terms["op_b"], "N")
    k = terms["a"]["columns"] if ops[0] == "N" else terms["a"]["rows"]
    return ops, terms["d"]["rows"], terms["d"]["columns"], k


def _types(terms: dict[str, Any]) -> tuple[str, str, str]:
    a, b = (terms["b_type"], terms["a_type"]) if terms["swapped"] else (terms["a_type"], terms["b_type"])
    return a, b, terms["dtype"]


def _plain(terms: dict[str, Any]) -> bool:
    """Whether there is nothing that the other formats' keys leave out: an epilogue, scales, a loop, a packed weight."""
    scaled = any(terms.get(name) for name in ("scale_a", "scale_b", "scale_c", "scale_d", "amax"))
    return terms["epilogue"] == "default" and not (terms["outer_shape"] or terms["packed"] or scaled)


def export_tunableop(records: Iterable[Record], *, torch_version: str = "") -> tuple[str, int]:
    """Return records as a results file of PyTorch's TunableOp, and how many could not be said in it.

    Parameters
    ----------
    records
        Records of one environment.
    torch_version
        For the validator line ``PT_VERSION``, without which torch ignores the file; left out if empty.

    Returns
    -------
    tuple of str and int
        The CSV, and the number of records left out: those of the host platform, whose solution indices are its own,
        and those with an epilogue, scales or packed weights, which TunableOp's keys do not tell apart.

    Raises
    ------
    InvalidProblemError
        If the records are of more than one environment.

    Examples
    --------
    >>> import rocpy
    >>> rocpy.tuning.export_tunableop([])
    ('', 0)
    """
    records = list(records)
    rows, lines = [], []
    for record, environment, terms in _amd(records):
        a, b, d = _types(terms)
        if a not in TORCH_WORDS or not a == b == d or not _plain(terms) or terms["compute"] == "tf32":
            continue
        ops, m, n, k = _extents(terms)
        leading = f"ld_{terms['a']['ld']}_{terms['b']['ld']}_{terms['c']['ld']}"
        batch = f"_B_{terms['batch_count']}" if terms["batch_count"] > 1 else ""
        operator = "GemmStridedBatchedTunableOp" if batch else "GemmTunableOp"
        lines.append(
            f"{operator}_{TORCH_WORDS[a]}_{ops},{ops.lower()}_{m}_{n}_{k}{batch}_{leading},"
            f"Gemm_Hipblaslt_{ops}_{record.solution},{record.measured_us / 1e3:.6g}"
        )
        rows.append(environment)
    if rows:
        version, revision = _one_environment(rows)
        head = [f"Validator,PT_VERSION,{torch_version}"] if torch_version else []
        head += [f"Validator,HIPBLASLT_VERSION,{version}-{revision}", f"Validator,GCN_ARCH_NAME,{rows[0]['arch']}"]
        lines = head + lines
    return "".join(line + "\n" for line in lines), len(records) - len(rows)


def export_hipblaslt(records: Iterable[Record]) -> tuple[str, int]:
    """Return records as a file for ``HIPBLASLT_TUNING_OVERRIDE_FILE``, and how many could not be said in it.

    Parameters
    ----------
    records
        Records of one environment.

    Returns
    -------
    tuple of str and int
        The file, whose first line is the library's revision, and the number of records left out: those of the host
        platform, and those with an epilogue, scales or packed weights, which the file's keys do not tell apart.

    Raises
    ------
    InvalidProblemError
        If the records are of more than one environment.

    Notes
    -----
    The file's keys hold neither leading dimensions nor strides; of two records that differ in those the faster one is
    written.

    Examples
    --------
    >>> import rocpy
    >>> rocpy.tuning.export_hipblaslt([])
    ('', 0)
    """
    records = list(records)
    environments: list[Any] = []
    best: dict[Any, Any] = {}
    for record, environment, terms in _amd(records):
        a, b, d = _types(terms)
        compute = BENCH_COMPUTE.get(terms["compute"])
        if not {a, b, d} <= set(BENCH_TYPES) or compute is None or not _plain(terms):
            continue
        ops, m, n, k = _extents(terms)
        key = f"{ops[0]},{ops[1]},{terms['batch_count']},{m},{n},{k},{BENCH_TYPES[a]},{BENCH_TYPES[b]},{BENCH_TYPES[d]}"
        environments.append(environment)
        other = best.get(f"{key},{compute}")
        if other is None or record.measured_us < other.measured_us:
            best[f"{key},{compute}"] = record
    if not environments:
        return "", len(records)
    _, revision = _one_environment(environments)
    lines = [f"Git Version: {revision}"]
    for key, record in best.items():
        lines += [OFFLINE_COLUMNS, f"{key},{record.solution}"]
    return "".join(line + "\n" for line in lines), len(records) - len(environments)


def _one_environment(environments: list[dict[str, Any]]) -> tuple[Any, str]:
    found = {(row["hipblaslt"], row["revision"], row["arch"]) for row in environments}
    if len(found) != 1:
        raise InvalidProblemError(
            f"the records are of {len(found)} environments, and the file can hold one: choose one of "
            + "; ".join(f"hipBLASLt {version}-{revision} on {arch}" for version, revision, arch in sorted(found))
        )
    version, revision, _ = found.pop()
    return version, revision

# SPDX-License-Identifier: MIT
"""A made-up library: libhipchecksum, with its version and Fletcher's checksum, which the host platform has."""

from __future__ import annotations

from edits import insert_before

LIBRARIES = "csrc/abi/libraries.def"
ROWS = "csrc/abi/hipchecksum.def"
TYPES = "csrc/abi/types_hipchecksum.h"
SOURCE = "csrc/platforms/host/hipchecksum/hipchecksum.cpp"
NOUN = "rocpy/runtime/hipchecksum.pyx"
FILES = (LIBRARIES, ROWS, TYPES, SOURCE, NOUN)

ROW = (
    'ROCPY_LIBRARY(hipchecksum, "hipchecksum", optional, own, 10000, 100, "hipchecksumGetVersion", '
    "hipchecksumStatus_t, HIPCHECKSUM_STATUS_NOT_SUPPORTED, HIPCHECKSUM_STATUS_ALLOC_FAILED, "
    "HIPCHECKSUM_STATUS_INTERNAL_ERROR)\n"
)

FUNCTIONS = """/* SPDX-License-Identifier: MIT
 *
 * The functions of libhipchecksum: library, result, name, parameters, first version that has it.
 */
ROCPY_FUNCTION(hipchecksum, hipchecksumStatus_t, hipchecksumGetVersion, (int* version), 10000)
ROCPY_FUNCTION(hipchecksum, hipchecksumStatus_t, hipchecksumFletcher, (const void* x, size_t n, uint32_t* sum), 10200)
"""

STATUSES = """/* SPDX-License-Identifier: MIT */
/* The types of libhipchecksum. */
#pragma once

#include <stdint.h>

typedef enum hipchecksumStatus_t {
  HIPCHECKSUM_STATUS_SUCCESS = 0,
  HIPCHECKSUM_STATUS_INVALID_VALUE = 1,
  HIPCHECKSUM_STATUS_ALLOC_FAILED = 2,
  HIPCHECKSUM_STATUS_INTERNAL_ERROR = 3,
  HIPCHECKSUM_STATUS_NOT_SUPPORTED = 4
} hipchecksumStatus_t;
"""

COMPUTED = """// SPDX-License-Identifier: MIT
// Fletcher's checksum of 16-bit words, the last one padded with zero.
#include "exports.h"

hipchecksumStatus_t rocpy_host_hipchecksumGetVersion(int *version) {
  if (!version) return HIPCHECKSUM_STATUS_INVALID_VALUE;
  *version = 10203;
  return HIPCHECKSUM_STATUS_SUCCESS;
}

hipchecksumStatus_t rocpy_host_hipchecksumFletcher(const void *data, size_t bytes, uint32_t *sum) {
  if (!data || !bytes || !sum) return HIPCHECKSUM_STATUS_INVALID_VALUE;
  auto *at = static_cast<const unsigned char *>(data);
  unsigned int low = 0, high = 0;
  for (size_t i = 0; i < bytes; i += 2) {
    low = (low + at[i] + (i + 1 < bytes ? at[i + 1] * 256u : 0u)) % 65535;
    high = (high + low) % 65535;
  }
  *sum = high << 16 | low;
  return HIPCHECKSUM_STATUS_SUCCESS;
}
"""

BINDING = '''# SPDX-License-Identifier: MIT
"""Checksums by libhipchecksum."""

from libc.stdint cimport uint32_t

cimport abi


def fletcher(bytes data not None):
    """Return Fletcher's checksum of some bytes (hipchecksumFletcher)."""
    cdef uint32_t total = 0
    abi.hipchecksumFletcher(<const char*>data, len(data), &total)
    return total
'''

TEST = '''# SPDX-License-Identifier: MIT
"""The made-up library is loaded, called and checked like the others."""

import pytest

import rocpy
from rocpy import _core
from rocpy.runtime.hipchecksum import fletcher


def test_the_library_is_one_of_the_platform():
    library = rocpy.platform.current().libraries["hipchecksum"]
    assert library.version == "1.2.3"
    assert library.missing == ()
    assert library.path.endswith("libhipchecksum.so")
    assert _core.library_files()["hipchecksum"] == "hipchecksum"
    assert ("hipchecksum", "hipchecksumFletcher", 10200, False) in _core.functions()


PUBLISHED = [(b"abcde", 0xF04FC729), (b"abcdef", 0x56502D2A), (b"abcdefgh", 0xEBE19591)]


@pytest.mark.parametrize(("data", "expected"), PUBLISHED)
def test_a_function_gives_what_is_published(data, expected):
    assert fletcher(data) == expected


def test_a_status_is_an_error_that_names_the_library():
    with pytest.raises(rocpy.LibraryError, match="hipchecksumFletcher .hipchecksum. failed: status 1"):
        fletcher(b"")
'''
TESTS = ("tests/unit/test_abi_pxd.py", "tests/unit/test_errors.py")
TARGETS = ("rocpy_core", "rocpy_host", "rocpy_host_hipchecksum", "rocpy__core", "rocpy_runtime_hipchecksum")


def change(texts: dict[str, str]) -> dict[str, str]:
    """Return the files with the library."""
    row = insert_before(texts, LIBRARIES, "#endif\n\n#ifdef ROCPY_FUNCTION\n", ROW)
    functions = insert_before({LIBRARIES: row}, LIBRARIES, '#include "extension.def"\n', '#include "hipchecksum.def"\n')
    return {
        LIBRARIES: insert_before(
            {LIBRARIES: functions}, LIBRARIES, '#include "types_hip.h"\n', '#include "types_hipchecksum.h"\n'
        ),
        ROWS: FUNCTIONS,
        TYPES: STATUSES,
        SOURCE: COMPUTED,
        NOUN: BINDING,
    }

# SPDX-License-Identifier: MIT
"""Texts and configurations of RCCL, for Cython."""

from abi cimport ncclComm_t, ncclConfig_t

cdef object last_text(ncclComm_t comm)
cdef ncclConfig_t nonblocking_config(const char* name) noexcept

# SPDX-License-Identifier: MIT
"""Texts and configurations of RCCL, for Cython."""

from abi cimport ncclComm_t, ncclConfig_t

cdef object last_text(ncclComm_t comm)
cdef str status_text(ncclComm_t comm)
cdef object apply_settings(ncclConfig_t* config, object settings)
cdef ncclConfig_t nonblocking_config(const char* name) noexcept
# The index of a rank's device; refuses more ranks than there are devices.
cdef int device_of_rank(object device, int nranks, int rank) except -1

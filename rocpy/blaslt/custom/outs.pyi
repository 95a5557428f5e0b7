# SPDX-License-Identifier: MIT
# The module has nothing for Python; outs.pxd has what it has for Cython.

# SPDX-License-Identifier: MIT
# The steps of a call have no functions for Python.

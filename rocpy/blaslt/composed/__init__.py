# SPDX-License-Identifier: MIT
"""Products that the library cannot fuse: a native one, then the operations of the framework."""
